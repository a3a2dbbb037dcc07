package bpfcost_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"bpfcost"
)

// words are those of the test of this package, or of an example that needs neither root nor a guest.
func words() []string {
	if set := os.Getenv("BPFCOST_EXAMPLE"); set != "" {
		return strings.Fields(set)
	}
	return strings.Fields("run pool --case line/own --quick")
}

// go test -bench . prints a line for each case.
func BenchmarkCosts(b *testing.B) {
	bpfcost.Benchmark(b, words()...)
}

// A limit, as any test has one.
func TestCosts(t *testing.T) {
	costs, err := bpfcost.Run(context.Background(), words()...)
	if err != nil {
		t.Fatal(err)
	}
	if len(costs) == 0 {
		t.Fatal("no costs")
	}
	for name, units := range costs {
		for unit, cost := range units {
			if cost.Low > cost.Value || cost.Value > cost.High {
				t.Errorf("%s: the interval of %v %s does not hold its value", name, cost, unit)
			}
			if cost.Value <= 0 || cost.Value > 10_000 {
				t.Errorf("%s: %v %s", name, cost, unit)
			}
		}
	}
}
