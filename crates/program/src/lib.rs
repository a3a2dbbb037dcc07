//! A person's own BPF programs, and the packets that they are run on, as data: a plan holds them whole, so that a guest
//! and a resumed run have them too.

mod behaviour;
mod definition;
mod expectation;
mod hooked;
mod hot_spots;
mod input;
mod map_file;
mod map_setting;
mod packet;
mod pcap;
mod slot;
mod span;
mod trace;

pub use behaviour::behaviour;
pub use definition::{LoaderCommand, OwnPrograms};
pub use expectation::{Expectation, Expected, expected_file};
pub use hooked::{HookedPrograms, StimulusSource};
pub use hot_spots::{hot_calls, hot_spots};
pub use input::{Form, Input, InputError};
pub use map_file::Syntax as MapSyntax;
pub use map_setting::maps;
pub use packet::inputs;
pub use pcap::packets as pcap_packets;
pub use slot::slots;
pub use span::{
    Event, EventCall, EventParts, Flow, Instruction, KernelPlaces, ProgramTrace, Span, Trace,
    TraceReader, Watch, WatchedProgram,
};
pub use trace::InstructionTracer;
