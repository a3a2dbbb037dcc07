// Count counts calls of a function of a running process by crates/uprobe/c/examples/calls.bpf.c, and shows their arguments.
//
//	go build ./examples/count
//	count calls.bpf.o 4711 handle_request
//
// It ends with the process, or by Ctrl-C: the process goes on as it was before.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"bpfcost/uprobe"
)

const interval = 100 * time.Millisecond

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: count OBJECT PID FUNCTION")
		os.Exit(2)
	}
	pid, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = count(os.Args[1], pid, os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func count(object string, pid int, function string) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	probes, err := uprobe.Open(object, nil)
	if err != nil {
		return err
	}
	defer probes.Close()
	attachment, err := probes.Attach(pid, uprobe.Place{Program: "on_call", Name: function})
	if err != nil {
		return err
	}
	fmt.Println("attached")
	for isOver := false; !isOver; {
		select {
		case <-interrupted:
			isOver = true
		case <-time.After(interval):
			if isOver, err = attachment.HasEnded(); err != nil {
				return err
			}
		}
		if err = probes.Records("calls", printCall); err != nil {
			return err
		}
	}
	counts, err := attachment.Detach()
	if err != nil {
		return err
	}
	// Calls since the last look.
	if err = probes.Records("calls", printCall); err != nil {
		return err
	}
	lost, err := probes.LostRecords("calls")
	if err != nil {
		return err
	}
	if err = printThreads(probes); err != nil {
		return err
	}
	fmt.Printf("%d hits, %d missed, %d records lost\n", counts[0].Hits, counts[0].Missed, lost)
	return nil
}

func printCall(record uprobe.Record) {
	word := func(index int) uint64 { return binary.LittleEndian.Uint64(record.Bytes[8*index:]) }
	fmt.Printf("process %d, thread %d: %#x %#x\n", record.PID, word(0), word(1), word(2))
}

func printThreads(probes *uprobe.Probes) error {
	byThread, err := probes.Map("by_thread")
	if err != nil {
		return err
	}
	entries, err := byThread.Entries()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		thread := binary.LittleEndian.Uint32(entry.Key)
		calls := binary.LittleEndian.Uint64(entry.Values[0])
		fmt.Printf("thread %d: %d calls\n", thread, calls)
	}
	return nil
}
