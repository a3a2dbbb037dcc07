// Calls a function with pointers, and recovers from its own faults. Prints "ready", waits for a line, prints how many faults
// it recovered from, and waits for another line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"unsafe"
)

//go:noinline
func handle(text unsafe.Pointer, value uint64) uint64 {
	return value + 1
}

// Has no test of the stack: its first instruction reads.
//
//go:noinline
func load(pointer *int) int {
	return *pointer
}

//go:noinline
func fault(pointer *int) (recovered int) {
	defer func() {
		if recover() != nil {
			recovered = 1
		}
	}()
	return load(pointer)
}

func main() {
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	input.ReadString('\n')
	memory := make([]byte, 1<<16)
	for i := range memory {
		memory[i] = 0x5a
	}
	recovered := 0
	for i := 0; i < 1000; i++ {
		handle(unsafe.Pointer(&memory[i]), 0x5a)
		handle(nil, 0x5a)
		recovered += fault(nil)
	}
	fmt.Println(recovered)
	input.ReadString('\n')
}
