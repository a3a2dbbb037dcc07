// Package bpfcost puts costs of BPF programs into Go benchmarks. It calls the program bpfcost, and reports what that
// prints: nothing is measured or judged here.
package bpfcost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// Program is the environment variable with the path of bpfcost. Without it, bpfcost is looked for in PATH.
const Program = "BPFCOST"

// Cost is a value with the ends of its 95 % interval; of a count, the smallest and largest of a load.
type Cost struct {
	Value float64 `json:"value"`
	Low   float64 `json:"lower_value"`
	High  float64 `json:"upper_value"`
}

// Costs are the costs of a run, by case (ladder/added-10 on host) and then by unit (ns-per-op, insn-per-op).
type Costs map[string]map[string]Cost

// Failed is the error of a run that ended with an exit code other than 0.
type Failed struct {
	// Code is the exit code: 1 a gate failed, 2 wrong usage, 3 a case was invalid, 4 the machine lacks something.
	Code int
	// Message is what bpfcost printed on stderr.
	Message string
}

func (failed *Failed) Error() string {
	gate := ""
	if failed.Code == 1 {
		gate = ", as a gate failed"
	}
	return fmt.Sprintf("bpfcost ended with exit code %d%s:\n%s", failed.Code, gate, failed.Message)
}

// Run calls bpfcost with the words of its command line, for instance "program", "lb.bpf.o", "--on", "exact:6.12". The
// command must be one that measures: run, program or overhead. Costs are returned with a [Failed], too, if a gate failed
// or a case was invalid: those of the valid cases. When the context ends, bpfcost is killed; nothing of it stays attached.
func Run(ctx context.Context, words ...string) (Costs, error) {
	program := os.Getenv(Program)
	if program == "" {
		program = "bpfcost"
	}
	folder, err := os.MkdirTemp("", "bpfcost")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	// The record goes with the folder, unless the words say otherwise.
	all := append([]string{}, words...)
	if !has(words, "--out") {
		all = append(all, "--out", filepath.Join(folder, "record.json"))
	}
	command := exec.CommandContext(ctx, program, append(all, "--format", "bencher")...)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	failure := command.Run()
	var exit *exec.ExitError
	if failure != nil && !errors.As(failure, &exit) {
		return nil, fmt.Errorf("cannot start bpfcost: %w\n  Install it, or set %s to its path", failure, Program)
	}
	if exit != nil {
		failure = &Failed{Code: exit.ExitCode(), Message: strings.TrimSpace(complaint.String())}
	}
	costs := Costs{}
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &costs); err != nil && failure == nil {
			return nil, fmt.Errorf("bpfcost printed no costs: %w", err)
		}
	}
	return costs, failure
}

// Benchmark calls bpfcost once, and reports each case as a sub-benchmark: its cost as ns/op or insn/op, and the ends of the
// interval as low-ns/op and high-ns/op. b.N has no meaning: bpfcost decides how often it measures.
func Benchmark(b *testing.B, words ...string) {
	b.Helper()
	costs, err := Run(context.Background(), words...)
	names := make([]string, 0, len(costs))
	for name := range costs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			// A value of 0 takes the time of this function out of the line.
			b.ReportMetric(0, "ns/op")
			for unit, cost := range costs[name] {
				unit = strings.ReplaceAll(unit, "-per-", "/")
				b.ReportMetric(cost.Value, unit)
				b.ReportMetric(cost.Low, "low-"+unit)
				b.ReportMetric(cost.High, "high-"+unit)
			}
		})
	}
	if err != nil {
		b.Fatal(err)
	}
}

func has(words []string, option string) bool {
	for _, word := range words {
		if word == option || strings.HasPrefix(word, option+"=") {
			return true
		}
	}
	return false
}
