package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
)

// lookupResult is the answer to a query.
type lookupResult struct {
	// Name is the name that was resolved last: that of the query with a suffix of the search list.
	Name   string `json:"name"`
	Type   string `json:"type"`
	Server string `json:"server"`
	// Rcode is NOERROR, NXDOMAIN and so on.
	Rcode string `json:"rcode"`
	// Answers are the data of the records of the queried type, in the order of the answer; TTLs are
	// theirs.
	Answers []string `json:"answers"`
	TTLs    []uint32 `json:"ttls,omitempty"`
	// Authority are the records of the authority section, such as the SOA of a negative answer.
	Authority []string `json:"authority,omitempty"`
}

const resolvConf = "/etc/resolv.conf"

type lookup struct {
	kind, server, resolvConf string
	timeout                  time.Duration
	tcp                      bool
}

func newLookup() *cobra.Command {
	var l lookup
	cmd := &cobra.Command{
		Use:   "lookup NAME",
		Short: "Resolve a name, with the search list of the pod, and print the answer",
		Long: "lookup queries the pod's DNS servers, or another one, and prints the answer as JSON.\n" +
			"With --type PTR the name may be an IP address.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := l.run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := printJSON(result); err != nil {
				return err
			}
			if result.Rcode == dns.RcodeToString[dns.RcodeServerFailure] {
				return fmt.Errorf("%s could not answer", result.Server) // SERVFAIL: it is not known whether the name exists
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&l.kind, "type", "A", "A, AAAA, SRV, PTR or any other type")
	flags.StringVar(&l.server, "server", "", "address of a DNS server, with or without port (default: those of the pod)")
	flags.StringVar(&l.resolvConf, "resolv-conf", resolvConf, "where servers and search list are read from")
	flags.DurationVar(&l.timeout, "timeout", 3*time.Second, "how long to wait for each answer")
	flags.BoolVar(&l.tcp, "tcp", false, "ask over TCP")
	return cmd
}

func (l lookup) run(ctx context.Context, name string) (lookupResult, error) {
	kind, ok := dns.StringToType[strings.ToUpper(l.kind)]
	if !ok {
		return lookupResult{}, fmt.Errorf("there is no record type %q", l.kind)
	}
	config, err := dns.ClientConfigFromFile(l.resolvConf)
	if err != nil && l.server == "" {
		return lookupResult{}, err
	}
	if config == nil {
		config = &dns.ClientConfig{Port: "53", Ndots: 1}
	}
	if l.server != "" {
		config.Servers = []string{l.server}
	}
	names := config.NameList(name)
	if _, err := netip.ParseAddr(name); err == nil && kind == dns.TypePTR {
		reverse, err := dns.ReverseAddr(name)
		if err != nil {
			return lookupResult{}, err
		}
		names = []string{reverse}
	}
	var result lookupResult
	for _, candidate := range names {
		result, err = l.ask(ctx, config, candidate, kind)
		if err != nil {
			return result, err
		}
		if len(result.Answers) > 0 { // as resolvers do: the first name with an answer
			break
		}
	}
	return result, nil
}

// ask queries the servers in turn until one answers.
func (l lookup) ask(ctx context.Context, config *dns.ClientConfig, name string, kind uint16) (lookupResult, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), kind)
	question.SetEdns0(4096, false)
	client := &dns.Client{Timeout: l.timeout}
	if l.tcp {
		client.Net = "tcp"
	}
	var failure error
	for _, server := range config.Servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(strings.Trim(server, "[]"), config.Port)
		}
		message, _, err := client.ExchangeContext(ctx, question, server)
		if err != nil {
			failure = fmt.Errorf("asking %s for %s: %w", server, name, err)
			continue
		}
		return read(message, name, kind, server), nil
	}
	if failure == nil {
		failure = fmt.Errorf("%s names no DNS server", l.resolvConf)
	}
	return lookupResult{}, failure
}

// address asks for the addresses of the host of a URL, once, as if its name ended in a dot. An
// answer without one is an error. The first stands for the cluster, all of them for the pod.
func (l lookup) address(ctx context.Context, target *url.URL) (answer, error) {
	config, err := dns.ClientConfigFromFile(l.resolvConf)
	if err != nil {
		return answer{}, err
	}
	result, err := l.ask(ctx, config, target.Host, dns.TypeA)
	if err != nil {
		return answer{}, err
	}
	if len(result.Answers) == 0 {
		return answer{}, fmt.Errorf("%s without an address for %s", result.Rcode, result.Name)
	}
	return answer{Cluster: result.Answers[0], Pod: strings.Join(result.Answers, " ")}, nil
}

func read(message *dns.Msg, name string, kind uint16, server string) lookupResult {
	result := lookupResult{
		Name: dns.Fqdn(name), Type: dns.TypeToString[kind], Server: server, Rcode: dns.RcodeToString[message.Rcode],
		Answers: []string{},
	}
	for _, record := range message.Answer {
		if record.Header().Rrtype == kind {
			result.Answers = append(result.Answers, data(record))
			result.TTLs = append(result.TTLs, record.Header().Ttl)
		}
	}
	for _, record := range message.Ns {
		result.Authority = append(result.Authority, record.String())
	}
	return result
}

// data returns the data of a record: its text without the header.
func data(record dns.RR) string { return strings.TrimPrefix(record.String(), record.Header().String()) }
