package uprobe

/*
#include <bpfcost_uprobe.h>
*/
import "C"

import "unsafe"

// At is a point of a function at which a program runs.
type At int

const (
	// AtEntry is before the first instruction.
	AtEntry At = C.BPFCOST_UPROBE_ENTRY
	// AtReturn is before the function returns, wherever it does, as a uretprobe.
	AtReturn At = C.BPFCOST_UPROBE_RETURN
	// AtOffset is before the instruction at Place.Offset.
	AtOffset At = C.BPFCOST_UPROBE_OFFSET
	// AtUSDT is all places of a USDT probe.
	AtUSDT At = C.BPFCOST_UPROBE_USDT
)

// Place is a program and where it runs.
type Place struct {
	Program string
	// File is one that the process executes, as the process sees it. Empty: its own program.
	File string
	// Provider of a USDT probe; else empty.
	Provider string
	// Name of the function, or of the USDT probe.
	Name string
	At   At
	// Offset in the function, in bytes, with AtOffset.
	Offset uint64
	// Cookie is the result of bpf_get_attach_cookie or bpf_usdt_cookie.
	Cookie uint64
}

// Counts of a program at a place. Hits and Missed are all calls.
type Counts struct {
	// Hits are runs of the program.
	Hits uint64
	// Missed are calls without it.
	Missed uint64
}

// Attachment is programs that are attached to a process.
type Attachment struct {
	probes *Probes
	pid    int
	number C.uint64_t
	places int
}

// Attach attaches programs to places of a process: all of them, or none. Of programs at the same place, the latest runs first.
func (probes *Probes) Attach(pid int, places ...Place) (*Attachment, error) {
	var memory arena
	defer memory.free()
	pointer := memory.zeros(len(places), C.sizeof_struct_bpfcost_uprobe_place)
	first := (*C.struct_bpfcost_uprobe_place)(pointer)
	for index, place := range places {
		unsafe.Slice(first, len(places))[index] = C.struct_bpfcost_uprobe_place{
			program:  memory.text(place.Program),
			file:     memory.text(place.File),
			provider: memory.text(place.Provider),
			name:     memory.text(place.Name),
			offset:   C.uint64_t(place.Offset),
			cookie:   C.uint64_t(place.Cookie),
			at:       C.uint32_t(place.At),
		}
	}
	var number C.uint64_t
	err := probes.call(func() C.int {
		return C.bpfcost_uprobe_attach(probes.handle, C.pid_t(pid), first, C.size_t(len(places)), &number)
	})
	if err != nil {
		return nil, err
	}
	return &Attachment{probes: probes, pid: pid, number: number, places: len(places)}, nil
}

// PID returns the process.
func (attachment *Attachment) PID() int { return attachment.pid }

// Detach restores the functions. It returns the counts of each place: no call is between them and the restored functions.
func (attachment *Attachment) Detach() ([]Counts, error) {
	return attachment.counts(func(counts *C.struct_bpfcost_uprobe_counts) C.int {
		return C.bpfcost_uprobe_detach(attachment.probes.handle, attachment.number, counts, C.size_t(attachment.places))
	})
}

// Counts returns what the program at each place did so far.
func (attachment *Attachment) Counts() ([]Counts, error) {
	return attachment.counts(func(counts *C.struct_bpfcost_uprobe_counts) C.int {
		return C.bpfcost_uprobe_counts(attachment.probes.handle, attachment.number, counts, C.size_t(attachment.places))
	})
}

func (attachment *Attachment) counts(ask func(*C.struct_bpfcost_uprobe_counts) C.int) ([]Counts, error) {
	all := make([]C.struct_bpfcost_uprobe_counts, attachment.places)
	if err := attachment.probes.call(func() C.int { return ask(&all[0]) }); err != nil {
		return nil, err
	}
	counts := make([]Counts, len(all))
	for index, one := range all {
		counts[index] = Counts{Hits: uint64(one.hits), Missed: uint64(one.missed)}
	}
	return counts, nil
}

// HasEnded returns true if the process ended, or executes another program, and no child that is followed runs the programs.
// The attachment stays until it is detached.
func (attachment *Attachment) HasEnded() (bool, error) {
	var ended C.int
	err := attachment.probes.call(func() C.int {
		return C.bpfcost_uprobe_has_ended(attachment.probes.handle, attachment.number, &ended)
	})
	return ended != 0, err
}
