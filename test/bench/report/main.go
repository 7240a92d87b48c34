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

// Main runs a benchmark with the flags all have and ends the process. Progress goes to stderr, results to stdout. It ends with 1 when something could
// not be measured, but not when a budget was missed: times on a shared machine are noise, and a reader judges them better than an exit
// code.
func Main(name string, r *Report, measure func(ctx context.Context, quick bool, r *Report) error) {
	quick := flag.Bool("quick", false, "measure fewer and smaller things")
	output := flag.String("o", "table", "table, markdown or json")
	plot := flag.String("plot", "", "a file for the ratios as a picture (SVG)")
	flag.Parse()
	write, known := map[string]func(io.Writer) error{"table": r.WriteTable, "markdown": r.WriteMarkdown, "json": r.WriteJSON}[*output]
	if flag.NArg() > 0 || !known {
		flag.Usage()
		os.Exit(2)
	}
	klog.SetOutput(io.Discard) // of the libraries; what goes wrong here is reported as an error
	klog.LogToStderr(false)
	ctrllog.SetLogger(klog.Background())
	r.Progress = os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.Join(measure(ctx, *quick, r), write(os.Stdout))
	stop()
	if *plot != "" {
		err = errors.Join(err, r.plotFile(*plot))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func (r *Report) plotFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.WritePlot(file), file.Close())
}
