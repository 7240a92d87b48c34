package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/daemon/version"
)

// session is shared by all commands of one run: the streams and the flags that choose a cluster.
type session struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
}

// connect opens the cluster that --kubeconfig and --context name.
func (s *session) connect() (survey.Connection, error) { return open(s.flags) }

// connectContext opens another context of the same kubeconfig. Flags that name a server or a user
// directly are for the cluster of --context and are left out.
func (s *session) connectContext(name string) (survey.Connection, error) {
	other := genericclioptions.NewConfigFlags(false)
	other.KubeConfig, other.Timeout = s.flags.KubeConfig, s.flags.Timeout
	other.Context = &name
	return open(other)
}

func open(flags *genericclioptions.ConfigFlags) (survey.Connection, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return survey.Connection{}, fmt.Errorf("no access to a cluster: %w (choose one with --kubeconfig and --context)", err)
	}
	config.QPS = -1 // the API server's own limits are enough
	config.UserAgent = "seamark/" + version.String()
	config.WarningHandler = rest.NoWarnings{}
	c, err := brokeradmin.NewClient(config)
	if err != nil {
		return survey.Connection{}, fmt.Errorf("no access to the cluster at %s: %w", config.Host, err)
	}
	return survey.Connection{Client: c, Config: config}, nil
}

// namespace returns the namespace to work in: the flag's, or that of the context.
func (s *session) namespace(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	name, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("no access to a cluster: %w (choose one with --kubeconfig and --context)", err)
	}
	return name, nil
}

// serverOf returns the address and CA with which a member will reach the API server of a
// connection.
func serverOf(c survey.Connection, override string) (address string, ca []byte, err error) {
	if c.Config.Insecure {
		return "", nil, errors.New("this context skips the verification of the API server's certificate, but members always verify it: " +
			"put certificate-authority-data into the kubeconfig")
	}
	config := rest.CopyConfig(c.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return "", nil, fmt.Errorf("read the certificate authority of the broker: %w", err)
	}
	if override == "" {
		return config.Host, config.CAData, nil
	}
	if u, err := url.Parse(override); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", nil, usagef("%q is not the address of an API server: write it as https://HOST:PORT", override)
	}
	return override, config.CAData, nil
}

// warnLoopback warns about an address of the broker that only this machine can reach.
func (s *session) warnLoopback(server string) {
	u, err := url.Parse(server)
	if err != nil {
		return
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); host == "localhost" || (ip != nil && ip.IsLoopback()) {
		fmt.Fprintf(s.ErrOut, "warning: %s can only be reached from this machine: if the cluster runs elsewhere, give an address it can reach\n",
			server)
	}
}

// addNamespace adds --namespace/-n.
func addNamespace(cmd *cobra.Command, target *string, byDefault, usage string) {
	cmd.Flags().StringVarP(target, "namespace", "n", byDefault, usage)
}

// optional returns the value of a flag, or nil if it was not given.
func optional[T any](cmd *cobra.Command, flag string, value T) *T {
	if cmd.Flags().Changed(flag) {
		return &value
	}
	return nil
}

// parseRanges parses the ranges of a flag; it returns a usageError.
func parseRanges(texts []string) ([]netip.Prefix, error) {
	ranges, err := brokeradmin.ParseRanges(texts)
	if err != nil {
		return nil, usageError{err}
	}
	return ranges, nil
}
