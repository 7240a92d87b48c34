// Command seamark-ui serves the page about a clusterset from inside one of its clusters, on the
// loopback interface of its pod. It reads, and can do nothing else.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui"
	"github.com/seamark-dev/seamark/internal/ui/fleet"
	"github.com/seamark-dev/seamark/internal/ui/server"
)

func main() {
	// Libraries log what they retry; the page shows what does not answer.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := command()
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		port        int
		health, dns string
	)
	cmd := &cobra.Command{
		Use:   "seamark-ui",
		Short: "Serve the page about the clusterset on the pod's loopback interface",
		Long: "seamark-ui serves the page of seamark ui from inside a member: what this cluster, its broker and its workloads show.\n" +
			"It listens on the loopback interface only, so that users who may forward a port to its pod reach it. Its log has\n" +
			"the address to open, with a token that is new at each start.",
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&port, "port", ui.DefaultPort, "port of the page")
	flags.StringVar(&dns, "dns", survey.DNSServer+"."+objects.AgentNamespace+".svc", "the DNS server to ask for names of the clusterset")
	flags.StringVar(&health, "health-probe-bind-address", ":9442", "address at which /healthz is served; 0 turns it off")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), port, health, dns) }
	return cmd
}

func run(ctx context.Context, port int, health, dns string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("this program runs in a pod (%w); elsewhere use seamark ui", err)
	}
	config.QPS, config.UserAgent, config.WarningHandler = -1, "seamark-ui/"+version.String(), rest.NoWarnings{}
	l, err := server.Listen(ctx, port, true)
	if err != nil {
		return err
	}
	token := server.NewToken()
	fmt.Fprintf(os.Stderr, "kubectl -n %s port-forward deployment/seamark-ui %d\nThen open http://localhost:%d/services#token=%s\n",
		objects.AgentNamespace, port, port, token)
	if health != "0" {
		go serveHealth(health)
	}
	return ui.Follow(ctx, ui.Options{Listener: l, Token: token}, fleet.Options{
		Clusters: []fleet.Target{{Config: config}}, BrokerNamespace: objects.DefaultNamespace, Servers: survey.Servers{"": withPort(dns)},
		ProxyToken: func(context.Context) (string, error) { return ownToken(config) },
	})
}

// withPort adds the port of DNS to a name.
func withPort(name string) string { return name + ":" + strconv.Itoa(53) }

// ownToken returns the token of this pod's ServiceAccount, which may read what proxies have
// programmed. The kubelet renews the file.
func ownToken(config *rest.Config) (string, error) {
	text, err := os.ReadFile(config.BearerTokenFile)
	if err != nil {
		return "", fmt.Errorf("read the token of the ServiceAccount: %w", err)
	}
	return string(text), nil
}

// serveHealth serves the probes of the kubelet, which cannot reach the loopback interface. It says
// only that the process lives.
func serveHealth(address string) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err := s.ListenAndServe(); err != nil {
		fmt.Fprintf(os.Stderr, "seamark-ui: probes: %v\n", err)
		os.Exit(1)
	}
}
