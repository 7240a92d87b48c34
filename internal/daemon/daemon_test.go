package daemon

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig with a context for each server, the first of them current.
func writeKubeconfig(t *testing.T, servers ...string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	for _, server := range servers {
		name := strings.TrimPrefix(server, "https://")
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	config.CurrentContext = strings.TrimPrefix(servers[0], "https://")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// parse returns the flags and options of a command line.
func parse(t *testing.T, args ...string) (*Flags, *Options, error) {
	t.Helper()
	var options Options
	set := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	flags := AddFlags(set, &options)
	return flags, &options, set.Parse(args)
}

func TestFlagsSetOptions(t *testing.T) {
	for name, c := range map[string]struct {
		args                   []string
		metrics, probes, pprof string
		level                  slog.Level
	}{
		"defaults": {nil, ":9441", ":9442", "", slog.LevelInfo},
		"all": {
			[]string{
				"--metrics-bind-address", "127.0.0.1:1", "--health-probe-bind-address=0", "--pprof-bind-address=127.0.0.1:3", "--log-level=debug",
			}, "127.0.0.1:1", "0", "127.0.0.1:3", slog.LevelDebug,
		},
		"level in capitals": {[]string{"--log-level=WARN"}, ":9441", ":9442", "", slog.LevelWarn},
	} {
		t.Run(name, func(t *testing.T) {
			flags, options, err := parse(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			if options.MetricsAddress != c.metrics || options.ProbeAddress != c.probes || options.PprofAddress != c.pprof || flags.level != c.level {
				t.Errorf("options %+v, log level %s", options, flags.level)
			}
		})
	}
}

func TestFlagsAreValidated(t *testing.T) {
	for arg, want := range map[string]string{
		"--log-level=loud": `invalid argument "loud" for "--log-level"`,
		"--log-level=":     `invalid argument "" for "--log-level"`,
		"--log-levels=1":   "unknown flag: --log-levels",
		"--context":        "flag needs an argument: --context",
	} {
		if _, _, err := parse(t, arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}

// A daemon offers its own flags only, not those that imported libraries register.
func TestLibrariesAddNoFlags(t *testing.T) {
	pflag.CommandLine.Bool("of-a-library", false, "")
	if _, _, err := parse(t); err != nil {
		t.Fatal(err)
	}
	if pflag.CommandLine.Lookup("of-a-library") != nil {
		t.Error("the flag of a library is still registered")
	}
}

func TestBeginReadsTheKubeconfig(t *testing.T) {
	path := writeKubeconfig(t, "https://east.example", "https://west.example")
	for context, want := range map[string]string{"": "https://east.example", "west.example": "https://west.example"} {
		flags, options, err := parse(t, "--kubeconfig", path, "--context", context)
		if err != nil {
			t.Fatal(err)
		}
		if err := flags.Begin(); err != nil {
			t.Fatal(err)
		}
		if options.Local.Host != want {
			t.Errorf("context %q: host %s, want %s", context, options.Local.Host, want)
		}
		if options.Log.GetSink() == nil || options.OnClusterID == nil {
			t.Errorf("context %q: no log: %+v", context, options)
		}
	}
	t.Setenv("KUBECONFIG", path)
	flags, options, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Begin(); err != nil || options.Local.Host != "https://east.example" {
		t.Errorf("with $KUBECONFIG: %v, %+v", err, options.Local)
	}
}

func TestBeginRefusesABadKubeconfig(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("not: [a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := writeKubeconfig(t, "https://east.example")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"missing file":     {[]string{"--kubeconfig", "/nonexistent/kubeconfig"}, "/nonexistent/kubeconfig"},
		"not a kubeconfig": {[]string{"--kubeconfig", garbage}, garbage},
		"unknown context":  {[]string{"--kubeconfig", good, "--context", "south"}, "south"},
	} {
		t.Run(name, func(t *testing.T) {
			flags, options, err := parse(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			err = flags.Begin()
			if err == nil || !strings.HasPrefix(err.Error(), "no access to the cluster: ") ||
				!strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), "; outside a pod, set --kubeconfig") {
				t.Errorf("%v, want %q in it", err, c.want)
			}
			if options.Local != nil {
				t.Errorf("a configuration in spite of the error: %+v", options.Local)
			}
		})
	}
}

func TestReportClusterID(t *testing.T) {
	var options Options
	options.ReportClusterID("east") // nothing to call
	var got []string
	options.OnClusterID = func(id string) { got = append(got, id) }
	options.ReportClusterID("east")
	options.ReportClusterID("")
	if strings.Join(got, ",") != "east," {
		t.Errorf("reported %q", got)
	}
}

// envRunMain makes a child of this test binary a daemon with the given command line.
const envRunMain = "SEAMARK_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	args, child := os.LookupEnv(envRunMain)
	if !child {
		os.Exit(m.Run())
	}
	var options Options
	cmd := &cobra.Command{Use: "seamark-test"}
	flags := AddFlags(cmd.Flags(), &options)
	cmd.RunE = func(*cobra.Command, []string) error { return flags.Begin() }
	cmd.SetArgs(strings.Fields(args))
	Main(cmd)
}

// An error ends the process with code 1 and one line that names the program; a success with code 0.
func TestMainExitCodes(t *testing.T) {
	good := writeKubeconfig(t, "https://east.example")
	for args, want := range map[string]struct {
		code int
		line string
	}{
		"--kubeconfig " + good:                  {0, ""},
		"--kubeconfig /nonexistent/kubeconfig":  {1, "seamark-test: no access to the cluster: "},
		"--log-level=loud --kubeconfig " + good: {1, `seamark-test: invalid argument "loud" for "--log-level"`},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envRunMain+"="+args)
		out, _ := cmd.CombinedOutput() // the exit code says more
		if code := cmd.ProcessState.ExitCode(); code != want.code {
			t.Errorf("%s: exit code %d, want %d: %s", args, code, want.code, out)
		}
		if got := string(out); !strings.HasPrefix(got, want.line) || strings.Count(got, "\n") != want.code {
			t.Errorf("%s: printed %q, want a line %q…", args, got, want.line)
		}
	}
}
