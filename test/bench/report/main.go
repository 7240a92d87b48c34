package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Main parses the flags that all benchmarks have, runs a benchmark and exits. Progress goes to
// stderr, results to stdout. The exit code is 1 when something could not be measured, but not when
// a budget was missed: times on a shared machine are noisy, so a reader has to judge them.
func Main(name string, r *Report, measure func(ctx context.Context, quick bool, r *Report) error) {
	quick := flag.Bool("quick", false, "measure less, in less time")
	output := flag.String("o", "table", "table, markdown or json")
	plot := flag.String("plot", "", "write a plot of the ratios to this file (SVG)")
	flag.Parse()
	writers := map[string]func(io.Writer) error{"table": r.WriteTable, "markdown": r.WriteMarkdown, "json": r.WriteJSON}
	write, known := writers[*output]
	if flag.NArg() > 0 || !known {
		flag.Usage()
		os.Exit(2)
	}
	klog.SetOutput(io.Discard) // drops the libraries' logs; failures here are returned as errors
	klog.LogToStderr(false)
	ctrllog.SetLogger(klog.Background())
	r.Progress = os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	theft := NewTheft()
	err := measure(ctx, *quick, r)
	r.Add(Row{Name: "CPU time that other machines took", Value: 100 * theft.Share(), Unit: "%"})
	err = errors.Join(err, write(os.Stdout))
	stop()
	if *plot != "" {
		err = errors.Join(err, r.writePlotFile(*plot))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func (r *Report) writePlotFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.WritePlot(file), file.Close())
}
