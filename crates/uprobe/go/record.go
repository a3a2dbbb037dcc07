package uprobe

/*
#include <bpfcost_uprobe.h>

extern void bpfcostUprobeRecord(void *context, pid_t pid, void *record, size_t size);
extern void bpfcostUprobeLine(void *context, struct bpfcost_uprobe_line *line);
*/
import "C"

import (
	"runtime/cgo"
	"time"
	"unsafe"
)

// Record is what a program wrote to a ring buffer.
type Record struct {
	// PID is the process that was attached to: itself, or a child of it, wrote the record.
	PID   int
	Bytes []byte
}

// Line is a line of bpf_printk.
type Line struct {
	// PID is the process that was attached to: itself, or a child of it, wrote the line.
	PID int
	// Thread is numbered as in its own PID namespace.
	Thread int
	CPU    int
	// Time of CLOCK_MONOTONIC.
	Time time.Duration
	Text string
}

// Records gives the records that were written to a ring buffer so far to a function, of each process in their order. It waits
// for nothing. The function may use the object.
func (probes *Probes) Records(name string, take func(Record)) error {
	var memory arena
	defer memory.free()
	var records []Record
	handle := cgo.NewHandle(func(record Record) { records = append(records, record) })
	defer handle.Delete()
	text := memory.text(name)
	err := probes.call(func() C.int {
		function := C.bpfcost_uprobe_record_fn(C.bpfcostUprobeRecord)
		return C.bpfcost_uprobe_records(probes.handle, text, function, unsafe.Pointer(&handle))
	})
	// Those before an error, too.
	for _, record := range records {
		take(record)
	}
	return err
}

// LostRecords returns how many records a ring buffer had no room for.
func (probes *Probes) LostRecords(name string) (uint64, error) {
	var memory arena
	defer memory.free()
	var lost C.uint64_t
	text := memory.text(name)
	err := probes.call(func() C.int { return C.bpfcost_uprobe_lost_records(probes.handle, text, &lost) })
	return uint64(lost), err
}

// Lines gives the lines of bpf_printk that were written so far to a function, of each process in their order.
func (probes *Probes) Lines(take func(Line)) error {
	var lines []Line
	handle := cgo.NewHandle(func(line Line) { lines = append(lines, line) })
	defer handle.Delete()
	err := probes.call(func() C.int {
		function := C.bpfcost_uprobe_line_fn(C.bpfcostUprobeLine)
		return C.bpfcost_uprobe_lines(probes.handle, function, unsafe.Pointer(&handle))
	})
	for _, line := range lines {
		take(line)
	}
	return err
}

// LostLines returns how many lines there was no room for.
func (probes *Probes) LostLines() (uint64, error) {
	var lost C.uint64_t
	err := probes.call(func() C.int { return C.bpfcost_uprobe_lost_lines(probes.handle, &lost) })
	return uint64(lost), err
}

//export bpfcostUprobeRecord
func bpfcostUprobeRecord(context unsafe.Pointer, pid C.pid_t, record unsafe.Pointer, size C.size_t) {
	take := (*cgo.Handle)(context).Value().(func(Record))
	take(Record{PID: int(pid), Bytes: C.GoBytes(record, C.int(size))})
}

//export bpfcostUprobeLine
func bpfcostUprobeLine(context unsafe.Pointer, line *C.struct_bpfcost_uprobe_line) {
	take := (*cgo.Handle)(context).Value().(func(Line))
	take(Line{
		PID:    int(line.pid),
		Thread: int(line.thread),
		CPU:    int(line.cpu),
		Time:   time.Duration(line.time),
		Text:   C.GoStringN(line.text, C.int(line.size)),
	})
}
