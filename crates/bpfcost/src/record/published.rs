//! Tables of pools under contention that others published, and what the model is told of their machines.

use super::predict::Told;

/// A published table.
pub(super) struct Published {
    pub(super) title: &'static str,
    pub(super) source: &'static str,
    pub(super) unit: &'static str,
    pub(super) machine: Told,
    /// Why all of its points are fitted, where they are: then none tests anything.
    pub(super) fitted: Option<&'static str>,
    /// By series: threads, and operations in [`SECONDS`].
    pub(super) rows: &'static [(&'static str, &'static [(u32, f64)])],
    /// What to know of single points: series, threads, and a sentence.
    pub(super) notes: &'static [(&'static str, u32, &'static str)],
}

/// All of them were counted for so long.
pub(super) const SECONDS: f64 = 10.0;

const CALLS: &str = "calls in 10 s";
const STUDY: &str = "study 001, README (2021)";
const OBJPOOL: &str = "the study's author, first object pool for the kernel: cover letter (2022)";
const SERIES: &str = "the study's author, \"kprobes: kretprobe scalability improvement with objpool\", \
                      linux-kernel (November 2022)";

/// The tables, oldest first.
pub(super) const TABLES: &[Published] = &[
    Published {
        title: "kretprobe on flock(2), Xeon E5-2660 v3",
        source: STUDY,
        unit: CALLS,
        machine: Told {
            sockets: 1,
            cores: 10,
            threads_per_core: 2,
            transfers: 1.0,
        },
        fitted: None,
        rows: &[
            (
                "freelist",
                &[
                    (1, 13_086_080.0),
                    (2, 22_493_637.0),
                    (4, 32_773_854.0),
                    (8, 20_129_772.0),
                    (10, 18_455_899.0),
                    (16, 18_435_561.0),
                    (20, 18_980_332.0),
                    (32, 18_988_603.0),
                    (40, 18_991_334.0),
                ],
            ),
            (
                "array",
                &[
                    (1, 13_144_036.0),
                    (2, 26_059_941.0),
                    (4, 47_449_954.0),
                    (8, 94_517_172.0),
                    (10, 115_856_027.0),
                    (16, 116_414_714.0),
                    (20, 125_692_971.0),
                    (32, 125_553_061.0),
                    (40, 125_685_981.0),
                ],
            ),
        ],
        notes: &[],
    },
    Published {
        title: "kretprobe on flock(2), TaiShan 2280 V2 (Kunpeng 920) in a guest",
        source: STUDY,
        unit: CALLS,
        machine: Told::KUNPENG,
        fitted: Some("all of its points are fitted: what a transfer takes was chosen to suit them"),
        rows: &[
            (
                "freelist",
                &[
                    (1, 17_233_640.0),
                    (2, 10_296_664.0),
                    (4, 8_095_309.0),
                    (8, 6_993_545.0),
                    (16, 5_050_817.0),
                    (24, 4_295_283.0),
                    (48, 3_382_013.0),
                    (96, 2_738_050.0),
                    (192, 2_743_345.0),
                ],
            ),
            (
                "array",
                &[
                    (1, 19_360_905.0),
                    (2, 37_395_225.0),
                    (4, 56_417_463.0),
                    (8, 10_020_136.0),
                    (16, 209_876_209.0),
                    (24, 328_940_014.0),
                    (48, 632_754_916.0),
                    (96, 1_277_862_473.0),
                    (192, 1_169_076_739.0),
                ],
            ),
        ],
        notes: &[(
            "array",
            8,
            "looks like a misprint, a digit short: 56 million at 4 threads and 210 at 16 leave some 100 for 8",
        )],
    },
    Published {
        title: "the queues alone, 2 × Xeon 8260",
        source: "the study's author, first object pool for the kernel: cover letter (2022); its curve of a \
                 freelist per CPU is left out, for no such pool is simulated: beyond one socket it fell to a \
                 third, which the rings here don't",
        unit: "pops and pushes in 10 s",
        machine: Told::XEON_8260,
        fitted: None,
        rows: &[(
            "freelist",
            &[
                (1, 237_911_411.0),
                (2, 163_596_418.0),
                (4, 33_048_459.0),
                (8, 15_506_757.0),
                (16, 10_640_043.0),
                (24, 9_025_299.0),
                (32, 7_965_531.0),
                (48, 6_800_225.0),
                (64, 5_507_639.0),
                (96, 4_284_752.0),
            ],
        )],
        notes: &[(
            "freelist",
            2,
            "five times what two cores reach anywhere else: perhaps two threads of one core, which share \
                 its cache; the model gives each a core",
        )],
    },
    Published {
        title: "kretprobe on flock(2), 2 × Xeon 8260",
        source: OBJPOOL,
        unit: CALLS,
        machine: Told::XEON_8260,
        fitted: None,
        rows: &[(
            "freelist",
            &[
                (1, 10_880_312.0),
                (2, 18_121_228.0),
                (4, 23_214_783.0),
                (6, 13_155_457.0),
                (8, 11_190_217.0),
                (12, 10_991_228.0),
                (16, 9_623_992.0),
                (24, 8_484_455.0),
                (32, 8_376_786.0),
                (48, 6_766_684.0),
                (64, 5_698_349.0),
                (96, 4_113_405.0),
                (128, 4_528_009.0),
                (192, 4_081_401.0),
            ],
        )],
        notes: &[(
            "freelist",
            8,
            "at the edge: the published curve falls by half from 4 threads to 6, the model's takes longer for it",
        )],
    },
    Published {
        title: "kretprobe on flock(2), 2 × Xeon 8336C",
        source: SERIES,
        unit: CALLS,
        machine: Told {
            sockets: 2,
            cores: 32,
            threads_per_core: 2,
            transfers: 1.0,
        },
        fitted: None,
        rows: &[
            (
                "freelist",
                &[
                    (1, 34_762_430.0),
                    (2, 36_546_920.0),
                    (4, 17_949_900.0),
                    (6, 13_101_899.0),
                    (8, 12_569_595.0),
                    (12, 12_646_601.0),
                    (16, 14_729_195.0),
                    (24, 19_263_546.0),
                    (32, 10_102_064.0),
                    (48, 8_985_418.0),
                    (64, 11_936_495.0),
                    (72, 11_493_980.0),
                    (96, 7_127_789.0),
                    (128, 9_330_985.0),
                ],
            ),
            (
                "percpu",
                &[
                    (1, 35_627_544.0),
                    (2, 72_182_095.0),
                    (4, 144_068_494.0),
                    (8, 287_564_688.0),
                    (16, 576_903_916.0),
                    (32, 1_158_876_372.0),
                    (48, 1_737_828_164.0),
                    (64, 2_324_371_724.0),
                    (96, 2_380_310_472.0),
                    (128, 2_463_182_819.0),
                ],
            ),
        ],
        notes: &[],
    },
    Published {
        title: "kretprobe on flock(2), Kunpeng 920, 96 cores",
        source: SERIES,
        unit: CALLS,
        machine: Told::KUNPENG,
        fitted: None,
        rows: &[
            (
                "freelist",
                &[
                    (1, 17_498_299.0),
                    (2, 10_887_037.0),
                    (4, 10_224_710.0),
                    (8, 8_499_132.0),
                    (16, 6_421_751.0),
                    (24, 5_339_868.0),
                    (32, 4_819_116.0),
                    (48, 3_593_919.0),
                    (64, 3_121_575.0),
                    (96, 2_687_167.0),
                ],
            ),
            (
                "percpu",
                &[
                    (1, 18_715_726.0),
                    (2, 35_549_845.0),
                    (4, 71_615_884.0),
                    (8, 144_258_971.0),
                    (16, 283_707_220.0),
                    (24, 419_830_913.0),
                    (32, 571_609_748.0),
                    (48, 877_456_139.0),
                    (64, 1_143_316_315.0),
                    (96, 1_725_668_029.0),
                ],
            ),
        ],
        notes: &[],
    },
];

impl Told {
    /// Two sockets of 48 cores, two NUMA nodes each.
    const KUNPENG: Told = Told {
        sockets: 2,
        cores: 48,
        threads_per_core: 1,
        transfers: 2.5,
    };

    const XEON_8260: Told = Told {
        sockets: 2,
        cores: 24,
        threads_per_core: 2,
        transfers: 1.0,
    };
}
