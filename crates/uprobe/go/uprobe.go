// Package uprobe runs ordinary uprobe BPF programs inside the probed process, without the kernel's trap. It binds
// libbpfcost_uprobe, which pkg-config has to find.
//
//	probes, err := uprobe.Open("count.bpf.o", nil)
//	attachment, err := probes.Attach(1234, uprobe.Place{Program: "count", Name: "handle_request"})
//	// … the process works …
//	counts, err := attachment.Detach()
//	err = probes.Close()
//
// All methods may be called by several goroutines; calls on the same object wait for each other.
package uprobe

/*
#cgo pkg-config: bpfcost_uprobe
#include <bpfcost_uprobe.h>
#include <stdlib.h>
*/
import "C"

import (
	"os"
	"runtime"
	"sync"
	"unsafe"
)

// Options choose an object's programs, and give its constants values.
type Options struct {
	// Programs to load, by name; none: those that the object marks for it.
	Programs []string
	// Constants are values of `const volatile` variables, by name.
	Constants map[string][]byte
}

// Probes are an object whose programs run in user space.
type Probes struct {
	mutex  sync.Mutex
	handle *C.struct_bpfcost_uprobe
}

// Version returns the library's version, such as "0.1.0".
func Version() string {
	return C.GoString(C.bpfcost_uprobe_version())
}

// Open has the kernel load an object file. Nothing is attached yet. The options may be nil.
func Open(path string, options *Options) (*Probes, error) {
	var memory arena
	defer memory.free()
	text, chosen := memory.text(path), memory.options(options)
	return open(func(handle **C.struct_bpfcost_uprobe) C.int {
		return C.bpfcost_uprobe_open(text, chosen, handle)
	})
}

// OpenBytes has the kernel load an object from memory. Its name is for errors.
func OpenBytes(name string, object []byte, options *Options) (*Probes, error) {
	var memory arena
	defer memory.free()
	text, bytes, chosen := memory.text(name), memory.bytes(object), memory.options(options)
	return open(func(handle **C.struct_bpfcost_uprobe) C.int {
		return C.bpfcost_uprobe_open_bytes(text, bytes, C.size_t(len(object)), chosen, handle)
	})
}

func open(load func(**C.struct_bpfcost_uprobe) C.int) (*Probes, error) {
	var handle *C.struct_bpfcost_uprobe
	if err := answer(func() C.int { return load(&handle) }); err != nil {
		return nil, err
	}
	probes := &Probes{handle: handle}
	runtime.SetFinalizer(probes, func(probes *Probes) { probes.Close() })
	return probes, nil
}

// Close detaches what is attached, and frees all. Further calls return os.ErrClosed.
func (probes *Probes) Close() error {
	probes.mutex.Lock()
	defer probes.mutex.Unlock()
	if probes.handle == nil {
		return os.ErrClosed
	}
	handle := probes.handle
	probes.handle = nil
	runtime.SetFinalizer(probes, nil)
	return answer(func() C.int { return C.bpfcost_uprobe_close(handle) })
}

// FollowChildren has forked children of the processes that are attached to from now on run the programs too.
func (probes *Probes) FollowChildren() error {
	return probes.call(func() C.int { return C.bpfcost_uprobe_follow_children(probes.handle) })
}

// ForgetEnded frees what is kept of processes that ended and to which nothing is attached.
func (probes *Probes) ForgetEnded() error {
	return probes.call(func() C.int { return C.bpfcost_uprobe_forget_ended(probes.handle) })
}

// call makes a call of the library on the object.
func (probes *Probes) call(work func() C.int) error {
	probes.mutex.Lock()
	defer probes.mutex.Unlock()
	if probes.handle == nil {
		return os.ErrClosed
	}
	err := answer(work)
	runtime.KeepAlive(probes)
	return err
}

// arena is C memory for the arguments of a call.
type arena []unsafe.Pointer

func (memory *arena) free() {
	for _, one := range *memory {
		C.free(one)
	}
}

// zeros returns memory for so many values of a size, at least one.
func (memory *arena) zeros(count int, size uintptr) unsafe.Pointer {
	pointer := C.calloc(C.size_t(count+1), C.size_t(size))
	*memory = append(*memory, pointer)
	return pointer
}

// text returns NULL for an empty string, which no name is.
func (memory *arena) text(text string) *C.char {
	if text == "" {
		return nil
	}
	pointer := C.CString(text)
	*memory = append(*memory, unsafe.Pointer(pointer))
	return pointer
}

func (memory *arena) bytes(bytes []byte) unsafe.Pointer {
	pointer := C.CBytes(bytes)
	*memory = append(*memory, pointer)
	return pointer
}

func (memory *arena) options(options *Options) *C.struct_bpfcost_uprobe_options {
	if options == nil {
		return nil
	}
	names := memory.zeros(len(options.Programs), unsafe.Sizeof(uintptr(0)))
	for index, name := range options.Programs {
		unsafe.Slice((**C.char)(names), len(options.Programs))[index] = memory.text(name)
	}
	constants := memory.zeros(len(options.Constants), C.sizeof_struct_bpfcost_uprobe_constant)
	index := 0
	for name, value := range options.Constants {
		all := unsafe.Slice((*C.struct_bpfcost_uprobe_constant)(constants), len(options.Constants))
		all[index] = C.struct_bpfcost_uprobe_constant{
			name:  memory.text(name),
			value: memory.bytes(value),
			size:  C.size_t(len(value)),
		}
		index++
	}
	chosen := (*C.struct_bpfcost_uprobe_options)(memory.zeros(1, C.sizeof_struct_bpfcost_uprobe_options))
	chosen.programs = (**C.char)(names)
	chosen.program_count = C.size_t(len(options.Programs))
	chosen.constants = (*C.struct_bpfcost_uprobe_constant)(constants)
	chosen.constant_count = C.size_t(len(options.Constants))
	return chosen
}
