package uprobe

/*
#include <bpfcost_uprobe.h>

extern void bpfcostUprobeEntry(void *context, void *key, size_t key_size, void *values, size_t value_size, size_t count);
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// MapInfo is the type and sizes of a map.
type MapInfo struct {
	// Kind is an enum bpf_map_type of <linux/bpf.h>.
	Kind uint32
	// KeySize and ValueSize are in bytes.
	KeySize, ValueSize int
	MaxEntries         int
	// ReadOnly is true of .rodata.
	ReadOnly bool
}

// Map is a map of the object. Keys and values are bytes, as long as the map's are.
type Map struct {
	probes *Probes
	name   string
	info   MapInfo
}

// Entry is a key with its values: one, or one of each thread where the kernel has values per CPU.
type Entry struct {
	Key    []byte
	Values [][]byte
}

// Map returns a map by its name. Global variables are in ".bss", ".data" and ".rodata", at index 0.
func (probes *Probes) Map(name string) (*Map, error) {
	var memory arena
	defer memory.free()
	var info C.struct_bpfcost_uprobe_map_info
	text := memory.text(name)
	err := probes.call(func() C.int { return C.bpfcost_uprobe_map_info(probes.handle, text, &info) })
	if err != nil {
		return nil, err
	}
	known := MapInfo{
		Kind:       uint32(info.kind),
		KeySize:    int(info.key_size),
		ValueSize:  int(info.value_size),
		MaxEntries: int(info.max_entries),
		ReadOnly:   info.read_only != 0,
	}
	return &Map{probes: probes, name: name, info: known}, nil
}

// Info returns the type and sizes.
func (one *Map) Info() MapInfo { return one.info }

// Get returns the value of a key of an array or a hash table; an error that is fs.ErrNotExist if there is none.
func (one *Map) Get(key []byte) ([]byte, error) {
	value := make([]byte, one.info.ValueSize)
	err := one.call(func(handle *C.struct_bpfcost_uprobe, name *C.char) C.int {
		return C.bpfcost_uprobe_map_get(handle, name, first(key), C.size_t(len(key)), first(value), C.size_t(len(value)))
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Set gives a key of an array or a hash table a value.
func (one *Map) Set(key, value []byte) error {
	return one.call(func(handle *C.struct_bpfcost_uprobe, name *C.char) C.int {
		return C.bpfcost_uprobe_map_set(handle, name, first(key), C.size_t(len(key)), first(value), C.size_t(len(value)))
	})
}

// Delete removes a key of a hash table. The error is fs.ErrNotExist if it was not there.
func (one *Map) Delete(key []byte) error {
	return one.call(func(handle *C.struct_bpfcost_uprobe, name *C.char) C.int {
		return C.bpfcost_uprobe_map_delete(handle, name, first(key), C.size_t(len(key)))
	})
}

// Entries returns all entries of a hash table. Some that come or go meanwhile may be missing, or there twice.
func (one *Map) Entries() ([]Entry, error) {
	return one.entries(func(handle *C.struct_bpfcost_uprobe, name *C.char, context unsafe.Pointer) C.int {
		return C.bpfcost_uprobe_map_each(handle, name, entryFn(), context)
	})
}

// Threads returns the values of a key of a map that the kernel has per CPU: one of each thread. Their sum is the sum over
// CPUs of a kernel probe.
func (one *Map) Threads(key []byte) ([][]byte, error) {
	entries, err := one.entries(func(handle *C.struct_bpfcost_uprobe, name *C.char, context unsafe.Pointer) C.int {
		return C.bpfcost_uprobe_map_threads(handle, name, first(key), C.size_t(len(key)), entryFn(), context)
	})
	if err != nil {
		return nil, err
	}
	return entries[0].Values, nil
}

// SetThreads gives an index of a per-CPU array a value, in all threads.
func (one *Map) SetThreads(index uint32, value []byte) error {
	return one.call(func(handle *C.struct_bpfcost_uprobe, name *C.char) C.int {
		return C.bpfcost_uprobe_map_set_threads(handle, name, C.uint32_t(index), first(value), C.size_t(len(value)))
	})
}

// Stack returns the addresses of a stack by the number that bpf_get_stackid returned, the innermost first.
func (one *Map) Stack(number uint32) ([]uint64, error) {
	addresses := make([]uint64, one.info.ValueSize/8+1)
	var depth C.size_t
	err := one.call(func(handle *C.struct_bpfcost_uprobe, name *C.char) C.int {
		into := (*C.uint64_t)(unsafe.Pointer(&addresses[0]))
		return C.bpfcost_uprobe_map_stack(handle, name, C.uint32_t(number), into, C.size_t(len(addresses)), &depth)
	})
	if err != nil {
		return nil, err
	}
	return addresses[:min(int(depth), len(addresses))], nil
}

func (one *Map) entries(ask func(*C.struct_bpfcost_uprobe, *C.char, unsafe.Pointer) C.int) ([]Entry, error) {
	var entries []Entry
	handle := cgo.NewHandle(func(entry Entry) { entries = append(entries, entry) })
	defer handle.Delete()
	err := one.call(func(probes *C.struct_bpfcost_uprobe, name *C.char) C.int {
		return ask(probes, name, unsafe.Pointer(&handle))
	})
	return entries, err
}

func (one *Map) call(ask func(*C.struct_bpfcost_uprobe, *C.char) C.int) error {
	var memory arena
	defer memory.free()
	name := memory.text(one.name)
	return one.probes.call(func() C.int { return ask(one.probes.handle, name) })
}

func entryFn() C.bpfcost_uprobe_entry_fn {
	return C.bpfcost_uprobe_entry_fn(C.bpfcostUprobeEntry)
}

//export bpfcostUprobeEntry
func bpfcostUprobeEntry(context, key unsafe.Pointer, keySize C.size_t, values unsafe.Pointer, valueSize, count C.size_t) {
	entry := Entry{Key: C.GoBytes(key, C.int(keySize))}
	for index := C.size_t(0); index < count; index++ {
		value := unsafe.Add(values, index*valueSize)
		entry.Values = append(entry.Values, C.GoBytes(value, C.int(valueSize)))
	}
	(*cgo.Handle)(context).Value().(func(Entry))(entry)
}

// first returns the address of bytes; nil if there are none.
func first(bytes []byte) unsafe.Pointer {
	if len(bytes) == 0 {
		return nil
	}
	return unsafe.Pointer(&bytes[0])
}

func min(left, right int) int {
	if left < right {
		return left
	}
	return right
}
