package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is what the command prints.
type Report struct {
	Engine   string            `json:"engine"`
	Version  string            `json:"version"`
	Settings map[string]string `json:"settings"`
	CPUs     int               `json:"cpus"`
	Slices   int               `json:"slices"`
	SliceMS  int64             `json:"slice_ms"`
	Results  []Result          `json:"results"`
	// Passed is false when any bar was missed.
	Passed bool `json:"passed"`
}

// Result is one comparison with one number of clients.
type Result struct {
	Comparison string `json:"comparison"`
	Baseline   string `json:"baseline"`
	Measured   string `json:"measured"`
	Clients    int    `json:"clients"`
	// CallsPerSide is how often each side was called, in all slices together.
	CallsPerSide int `json:"calls_per_side"`
	// The medians are over the slices, of the median latency in each, in microseconds.
	BaselineMedianUS float64 `json:"baseline_median_us"`
	MeasuredMedianUS float64 `json:"measured_median_us"`
	// Ratio is baseline / measured: 1 is as fast.
	Ratio Ratio `json:"ratio"`
	// Bar is what Ratio.Median must reach, nil where nothing is demanded; Passed is nil then, too.
	Bar    *float64 `json:"bar"`
	Passed *bool    `json:"passed"`
}

// Ratio is the ratio of median latencies, over the slices.
type Ratio struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Slices []float64 `json:"slices"`
}

// result sums up the slices of one comparison.
func (c comparison) result(clients int, measuredSlices []slice) Result {
	var ratios []float64
	var medians [2][]float64
	calls := 0
	for _, s := range measuredSlices {
		ratios = append(ratios, s.ratio())
		for side := range medians {
			medians[side] = append(medians[side], float64(median(s[side]))/float64(time.Microsecond))
		}
		calls += len(s[measured])
	}
	sides := c.sides()
	r := Result{
		Comparison:       c.name,
		Baseline:         sides[baseline],
		Measured:         sides[measured],
		Clients:          clients,
		CallsPerSide:     calls,
		BaselineMedianUS: median(medians[baseline]),
		MeasuredMedianUS: median(medians[measured]),
		Ratio: Ratio{
			Min:    slices.Min(ratios),
			Max:    slices.Max(ratios),
			Slices: slices.Clone(ratios),
		},
	}
	r.Ratio.Median = median(ratios)
	if bar, ok := c.bars[clients]; ok {
		passed := r.Ratio.Median >= bar
		r.Bar, r.Passed = &bar, &passed
	}
	return r
}

func (r *Report) add(results []Result) {
	r.Results = append(r.Results, results...)
	for _, result := range results {
		if result.Passed != nil && !*result.Passed {
			r.Passed = false
		}
	}
}

func write(w io.Writer, output string, r Report) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	return writeTable(w, r)
}

func writeTable(w io.Writer, r Report) error {
	fmt.Fprintf(w, "%s %s, %d CPUs, fsync %s, synchronous_commit %s; %d slices of %s\n",
		r.Engine, r.Version, r.CPUs, r.Settings["fsync"], r.Settings["synchronous_commit"],
		r.Slices, time.Duration(r.SliceMS)*time.Millisecond)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\t\t\tbaseline\tmeasured\tratio of medians\t\t\t\t")
	fmt.Fprintln(t, "comparison\tagainst\tclients\tµs\tµs\tmedian\tmin\tmax\tbar\t")
	for _, result := range r.Results {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\t%s\n",
			result.Comparison, result.Baseline, result.Clients, result.BaselineMedianUS, result.MeasuredMedianUS,
			result.Ratio.Median, result.Ratio.Min, result.Ratio.Max, result.verdict())
	}
	return t.Flush()
}

func (r Result) verdict() string {
	switch {
	case r.Bar == nil:
		return "-"
	case *r.Passed:
		return fmt.Sprintf("%.2f\tpassed", *r.Bar)
	default:
		return fmt.Sprintf("%.2f\tMISSED", *r.Bar)
	}
}
