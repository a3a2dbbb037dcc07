package uprobe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Of crates/uprobe/c/tests: the object kinds.bpf.c and the program calls.c, which its tests compile.
const (
	objectVariable = "BPFCOST_UPROBE_OBJECT"
	targetVariable = "BPFCOST_UPROBE_TARGET"

	threads, each = 2, 500
	calls         = threads * each
	cookie        = 5
)

// target is a running calls.c.
type target struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
}

func start(t *testing.T) *target {
	t.Helper()
	path := os.Getenv(targetVariable)
	if path == "" || os.Getenv(objectVariable) == "" {
		t.Skipf("%s and %s are not set", objectVariable, targetVariable)
	}
	command := exec.Command(path, fmt.Sprint(threads), fmt.Sprint(each))
	input, err := command.StdinPipe()
	check(t, err)
	output, err := command.StdoutPipe()
	check(t, err)
	check(t, command.Start())
	started := &target{command: command, input: input, output: bufio.NewReader(output)}
	t.Cleanup(func() { started.end() })
	equal(t, started.line(t), "ready")
	return started
}

func (one *target) line(t *testing.T) string {
	t.Helper()
	line, err := one.output.ReadString('\n')
	check(t, err)
	return strings.TrimSpace(line)
}

// call has it make its calls, for the given time.
func (one *target) call(t *testing.T, times int) {
	t.Helper()
	_, err := io.WriteString(one.input, "go\n")
	check(t, err)
	equal(t, one.line(t), fmt.Sprintf("%d 0", times*calls))
}

func (one *target) end() {
	one.input.Close()
	one.command.Wait()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("%v, not %v", found, expected)
	}
}

func key(number uint32) []byte { return binary.LittleEndian.AppendUint32(nil, number) }

func word(number uint64) []byte { return binary.LittleEndian.AppendUint64(nil, number) }

func number(bytes []byte) uint64 { return binary.LittleEndian.Uint64(bytes) }

func sum(values [][]byte) uint64 {
	total := uint64(0)
	for _, value := range values {
		total += number(value)
	}
	return total
}

func named(t *testing.T, probes *Probes, name string) *Map {
	t.Helper()
	found, err := probes.Map(name)
	check(t, err)
	return found
}

func TestEveryCallIsInCountsAndMaps(t *testing.T) {
	process := start(t)
	object, err := os.ReadFile(os.Getenv(objectVariable))
	check(t, err)
	options := Options{
		Programs:  []string{"on_entry", "on_return", "on_site"},
		Constants: map[string][]byte{"step": word(3)},
	}
	probes, err := OpenBytes("kinds", object, &options)
	check(t, err)
	check(t, probes.FollowChildren())
	attachment, err := probes.Attach(process.command.Process.Pid,
		Place{Program: "on_entry", Name: "handle", Cookie: cookie},
		Place{Program: "on_return", Name: "handle", At: AtReturn},
		Place{Program: "on_site", Provider: "test", Name: "sited", At: AtUSDT, Cookie: 9},
		Place{Program: "on_entry", Name: "sited", At: AtOffset, Offset: 3, Cookie: 6},
	)
	check(t, err)
	process.call(t, 1)
	counts, err := attachment.Counts()
	check(t, err)
	for index, expected := range []uint64{calls, calls, calls / 10, calls / 10} {
		equal(t, counts[index].Hits+counts[index].Missed, expected)
	}
	entry, inside := counts[0].Hits, counts[3].Hits
	checkMaps(t, probes, entry, inside)
	checkRecords(t, probes, counts[1].Hits)

	process.end()
	ended, err := attachment.HasEnded()
	check(t, err)
	equal(t, ended, true)
	again, err := attachment.Detach()
	check(t, err)
	equal(t, again[0], counts[0])
	check(t, probes.ForgetEnded())
	check(t, probes.Close())
	equal(t, errors.Is(probes.Close(), os.ErrClosed), true)
	equal(t, errors.Is(probes.ForgetEnded(), os.ErrClosed), true)
}

func checkMaps(t *testing.T, probes *Probes, entry, inside uint64) {
	t.Helper()
	table := named(t, probes, "table")
	equal(t, table.Info(), MapInfo{Kind: 1, KeySize: 4, ValueSize: 8, MaxEntries: 64})
	value, err := table.Get(key(cookie))
	check(t, err)
	equal(t, number(value), entry)
	entries, err := table.Entries()
	check(t, err)
	equal(t, len(entries), 2)
	equal(t, number(entries[0].Values[0])+number(entries[1].Values[0]), entry+inside)
	check(t, table.Set(key(7), word(8)))
	check(t, table.Delete(key(7)))
	equal(t, errors.Is(table.Delete(key(7)), fs.ErrNotExist), true)

	perThread := named(t, probes, "thread_array")
	values, err := perThread.Threads(key(1))
	check(t, err)
	equal(t, sum(values), entry+inside)
	check(t, perThread.SetThreads(0, word(2)))
	values, err = perThread.Threads(key(0))
	check(t, err)
	equal(t, sum(values), 2*uint64(len(values)))
	values, err = named(t, probes, "thread_table").Threads(word(cookie))
	check(t, err)
	equal(t, sum(values), entry)

	globals, err := named(t, probes, ".bss").Get(key(0))
	check(t, err)
	equal(t, number(globals), 3*(entry+inside))
	stack, err := named(t, probes, "stacks").Stack(uint32(number(globals[16:])))
	check(t, err)
	equal(t, len(stack) > 0 && stack[0] != 0, true)
}

func checkRecords(t *testing.T, probes *Probes, expected uint64) {
	t.Helper()
	records := uint64(0)
	err := probes.Records("ring", func(record Record) {
		equal(t, len(record.Bytes), 8)
		records++
		// The object can be used.
		_, err := probes.LostRecords("ring")
		check(t, err)
	})
	check(t, err)
	lost, err := probes.LostRecords("ring")
	check(t, err)
	equal(t, records > 0, true)
	equal(t, records+lost, expected)
}

func TestLines(t *testing.T) {
	process := start(t)
	probes, err := Open(os.Getenv(objectVariable), &Options{Programs: []string{"on_line"}})
	check(t, err)
	defer probes.Close()
	attachment, err := probes.Attach(process.command.Process.Pid, Place{Program: "on_line", Name: "handle"})
	check(t, err)
	process.call(t, 1)
	counts, err := attachment.Detach()
	check(t, err)
	lines := uint64(0)
	check(t, probes.Lines(func(line Line) {
		equal(t, line.PID, process.command.Process.Pid)
		equal(t, strings.HasPrefix(line.Text, "called with "), true)
		lines++
	}))
	lost, err := probes.LostLines()
	check(t, err)
	equal(t, lines > 0, true)
	equal(t, lines+lost, counts[0].Hits)
}

func TestErrors(t *testing.T) {
	process := start(t)
	_, err := Open("/nowhere", nil)
	equal(t, errors.Is(err, fs.ErrNotExist), true)
	equal(t, strings.Contains(err.Error(), "/nowhere"), true)
	_, err = OpenBytes("", nil, nil)
	equal(t, errors.Is(err, syscall.EINVAL), true)
	probes, err := Open(os.Getenv(objectVariable), nil)
	check(t, err)
	defer probes.Close()
	_, err = probes.Attach(process.command.Process.Pid)
	equal(t, errors.Is(err, syscall.EINVAL), true)
	_, err = probes.Attach(process.command.Process.Pid, Place{Program: "on_entry", Name: "handled"})
	equal(t, errors.Is(err, syscall.ENOENT), true)
	_, err = probes.Map("")
	equal(t, errors.Is(err, syscall.EINVAL), true)
	_, err = named(t, probes, "table").Get([]byte{1})
	equal(t, errors.Is(err, syscall.EINVAL), true)
	check(t, named(t, probes, "table").Set(key(1), word(1)))
	equal(t, errors.Is(named(t, probes, "table").Set(nil, nil), syscall.EINVAL), true)
}
