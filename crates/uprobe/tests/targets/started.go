// A short program, started often: it calls work as often as its argument says, in several goroutines.
package main

import (
	"os"
	"strconv"
	"sync"
)

//go:noinline
func work(number uint64) uint64 {
	return number*31 + 7
}

func main() {
	calls, _ := strconv.ParseUint(os.Args[1], 10, 64)
	var group sync.WaitGroup
	sums := make([]uint64, 4)
	for index := range sums {
		group.Add(1)
		go func() {
			defer group.Done()
			for call := uint64(0); call < calls; call++ {
				if call%4 == uint64(index) {
					sums[index] += work(call)
				}
			}
		}()
	}
	group.Wait()
	if sums[0] == 0 {
		os.Exit(1)
	}
}
