// Goroutines that call a function without end and check what it returns, while their stacks grow and the garbage
// collector runs. Prints "ready" with the address of seen, then waits for a line on stdin; starts, waits for another, and prints
// "CALLS WRONG".
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

//go:noinline
func work(a, b, c, d, e, f, g, h, i int) (int, int) {
	var local [40]int
	local[a&31] = b
	return a + c + d + e + f + g + h + i + local[a&31], b
}

// Its frames are large: the stack grows, which copies it.
//
//go:noinline
func deep(n int, calls, wrong *uint64) int {
	var local [200]int
	local[n] = n
	r, b := work(n, 1, 2, 3, 4, 5, 6, 7, 8)
	*calls++
	if r != n+36 || b != 1 {
		*wrong++
	}
	if n > 0 {
		return deep(n-1, calls, wrong) + local[n]
	}
	return 0
}

// For programs of the tests.
var seen [8]uint64

var sink atomic.Pointer[[]byte]

func main() {
	input := bufio.NewReader(os.Stdin)
	fmt.Printf("ready %p\n", &seen)
	input.ReadString('\n')
	var wait sync.WaitGroup
	var calls, wrong atomic.Uint64
	for i := 0; i < 8; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < 200; i++ {
				done := make(chan struct{})
				go func() {
					var c, w uint64
					deep(100, &c, &w)
					calls.Add(c)
					wrong.Add(w)
					garbage := make([]byte, 1<<16)
					sink.Store(&garbage)
					close(done)
				}()
				<-done
			}
			runtime.GC()
		}()
	}
	wait.Wait()
	fmt.Println("done")
	input.ReadString('\n')
	fmt.Println(calls.Load(), wrong.Load())
	input.ReadString('\n')
}
