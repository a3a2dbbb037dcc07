// SPDX-License-Identifier: MIT OR Apache-2.0

// Command loader does what counting.c does, as people write it in Go: without libbpf, and without cgo.
//
// loader OBJECT PID FILE OFFSET [several]: several attaches one more program, by a link to several places.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/perf"
	"github.com/cilium/ebpf/ringbuf"
)

const (
	weights       = 7
	perfBytes     = 1 << 18
	countedPlaces = 3
)

// The variable options of counting.bpf.c.
type options struct{ Divisor, EachRecord uint64 }

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// loaded returns the object in the kernel, with the options set, and with the third program if it is wanted.
func loaded(object string, wanted map[string]bool) *ebpf.Collection {
	spec, err := ebpf.LoadCollectionSpec(object)
	must(err)
	for name := range spec.Programs {
		if !wanted[name] {
			delete(spec.Programs, name)
		}
	}
	must(spec.Variables["options"].Set(options{weights, 10}))
	collection, err := ebpf.NewCollection(spec)
	must(err)
	for key := uint32(0); key < weights; key++ {
		must(collection.Maps["weights"].Put(key, uint64(key*key)))
	}
	return collection
}

// attached attaches the programs, and prints an error for each, or a zero.
func attached(collection *ebpf.Collection, pid int, file string, offset uint64) []link.Link {
	executable, err := link.OpenExecutable(file)
	must(err)
	links := make([]link.Link, 2, countedPlaces)
	errors := make([]error, 2, countedPlaces)
	at := link.UprobeOptions{Address: offset, PID: pid, Cookie: 3}
	links[0], errors[0] = executable.Uprobe("", collection.Programs["on_entry"], &at)
	at.Cookie = 0
	links[1], errors[1] = executable.Uretprobe("", collection.Programs["on_return"], &at)
	if program := collection.Programs["on_several"]; program != nil {
		at := link.UprobeMultiOptions{
			Addresses: []uint64{offset}, Cookies: []uint64{11}, PID: uint32(pid),
		}
		several, err := executable.UprobeMulti(nil, program, &at)
		links, errors = append(links, several), append(errors, err)
	}
	fmt.Print("attached")
	for _, err := range errors {
		if err == nil {
			fmt.Print(" 0")
		} else {
			fmt.Print(" ", err)
		}
	}
	fmt.Println()
	return links
}

// dump prints each entry by its key; the values of CPUs summed.
func dump(name string, table *ebpf.Map) {
	var key uint32
	entries := table.Iterate()
	if strings.HasSuffix(name, "cpu") {
		var values []uint64
		for entries.Next(&key, &values) {
			sum := uint64(0)
			for _, value := range values {
				sum += value
			}
			fmt.Println(name, key, sum)
		}
	} else {
		var value uint64
		for entries.Next(&key, &value) {
			fmt.Println(name, key, value)
		}
	}
	must(entries.Err())
}

func dumpBatch(table *ebpf.Map) {
	var place ebpf.MapBatchCursor
	keys, values := make([]uint32, 64), make([]uint64, 64)
	count, err := table.BatchLookup(&place, keys, values, nil)
	for i := 0; i < count; i++ {
		fmt.Println("batch", keys[i], values[i])
	}
	fmt.Println("batch ends with", err)
}

func dumpStacks(stacks *ebpf.Map) {
	var key uint32
	var frames [2]uint64
	entries := stacks.Iterate()
	for entries.Next(&key, &frames) {
		fmt.Printf("stack %x\n", frames)
	}
	must(entries.Err())
}

func main() {
	pid, err := strconv.Atoi(os.Args[2])
	must(err)
	offset, err := strconv.ParseUint(os.Args[4], 0, 64)
	must(err)
	wanted := map[string]bool{"on_entry": true, "on_return": true, "on_several": len(os.Args) > 5}
	collection := loaded(os.Args[1], wanted)
	samples, err := perf.NewReader(collection.Maps["perf"], perfBytes)
	must(err)
	records, err := ringbuf.NewReader(collection.Maps["ring"])
	must(err)
	links := attached(collection, pid, os.Args[3], offset)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "poll":
			number, err := strconv.Atoi(argument)
			must(err)
			for i := 0; i < number; i++ {
				sample, err := samples.Read()
				must(err)
				fmt.Printf("record perf %x lost %d\n", sample.RawSample[:40], sample.LostSamples)
			}
			for i := 0; i < number; i++ {
				record, err := records.Read()
				must(err)
				fmt.Printf("record ring %x\n", record.RawSample)
			}
			fmt.Println("polled")
		case "dump":
			for _, name := range []string{"by_rest", "recent", "by_rest_and_cpu", "by_cpu", "sums"} {
				dump(name, collection.Maps[name])
			}
			dumpBatch(collection.Maps["by_rest"])
			dumpStacks(collection.Maps["stacks"])
			fmt.Println("end")
		}
	}
	for _, one := range links {
		must(one.Close())
	}
}
