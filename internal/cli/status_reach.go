package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// lookTimeout is how long an API server may take to answer before it counts as unreachable: people wait for the answer.
const lookTimeout = 10 * time.Second

// reachFlags say which clusters to look into, and how to reach their broker.
type reachFlags struct {
	contexts                       []string
	brokerContext, brokerNamespace string
}

func (f *reachFlags) add(s *session, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.contexts, "contexts", nil, "look into the clusters of these contexts (default: that of --context)")
	flags.StringVar(&f.brokerContext, "broker-context", "", "ask the broker as its admin (default: as the member, with the credential that it joined with)")
	flags.StringVar(&f.brokerNamespace, "broker-namespace", objects.DefaultNamespace, "namespace of the broker, where its own context is used")
	for _, flag := range []string{"contexts", "broker-context"} {
		if err := cmd.RegisterFlagCompletionFunc(flag, s.completeContexts); err != nil {
			panic(err) // the flag is defined above
		}
	}
}

// completeContexts offers the contexts of the kubeconfig to a shell; after a comma, those not yet named.
func (s *session) completeContexts(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	config, err := s.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	before := typed[:strings.LastIndex(typed, ",")+1]
	named := strings.Split(before, ",")
	var out []string
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if !slices.Contains(named, name) {
			out = append(out, before+name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// site is a cluster as the user reaches it.
type site struct {
	// context is empty for the current one.
	context string
	connection
	clock *serverClock
	// id and clusterSet are what the cluster says of itself; empty when it is no member.
	id, clusterSet string
	// membership is nil when there is none, or when it cannot be read; then whyNoMembership tells.
	membership      *objects.Membership
	whyNoMembership string
	// problem is why it cannot be looked into at all.
	problem error
}

// name is what a site is called in tables.
func (s *site) name() string {
	switch {
	case s.id != "":
		return s.id
	case s.context != "":
		return s.context
	}
	return "(current)"
}

func (s *site) member() bool { return s.clusterSet != "" || s.membership != nil }

// hub is the broker as the user reaches it.
type hub struct {
	connection
	clock     *serverClock
	namespace string
	// via says as whom.
	via string
	set *v1alpha1.ClusterSet
	// problem is why it cannot be asked; then the rest may be empty. refused tells that it answered, but not this user.
	problem error
	refused bool
}

// reach opens the clusters that the flags name, and their broker. What cannot be reached is told in the site or hub, not as an error: the
// rest is still of use. It fails only on a command line that cannot be carried out.
func (s *session) reach(ctx context.Context, f reachFlags) ([]*site, *hub, error) {
	sites, err := s.open(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	h, err := s.findHub(ctx, f, sites)
	return sites, h, err
}

// open opens the clusters and asks them who they are.
func (s *session) open(ctx context.Context, f reachFlags) ([]*site, error) {
	var sites []*site
	if len(f.contexts) == 0 {
		c, err := s.connect()
		if err != nil {
			return nil, err
		}
		sites = append(sites, &site{context: *s.flags.Context, connection: c})
	}
	for _, name := range f.contexts {
		c, err := s.connectContext(name)
		if err != nil {
			return nil, err
		}
		sites = append(sites, &site{context: name, connection: c})
	}
	var looking sync.WaitGroup
	for _, site := range sites {
		looking.Go(func() { site.identify(ctx) })
	}
	looking.Wait()
	return sites, nil
}

// timed makes a connection end requests that hang, and lets it learn the server's clock.
func timed(c connection) (connection, *serverClock, error) {
	config, clock := rest.CopyConfig(c.config), &serverClock{}
	if config.Timeout == 0 {
		config.Timeout = lookTimeout
	}
	config.Wrap(clock.wrap)
	opened, err := brokeradmin.NewClient(config)
	return connection{client: opened, config: config}, clock, err
}

// identify asks a cluster who it is. Whoever looks may not be allowed to read everything.
func (s *site) identify(ctx context.Context) {
	if s.connection, s.clock, s.problem = timed(s.connection); s.problem != nil {
		return
	}
	for name, value := range map[string]*string{aboutv1beta1.PropertyClusterID: &s.id, aboutv1beta1.PropertyClusterSet: &s.clusterSet} {
		p := &aboutv1beta1.ClusterProperty{}
		err := s.client.Get(ctx, types.NamespacedName{Name: name}, p)
		switch {
		case err == nil:
			*value = p.Spec.Value
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsForbidden(err):
		default:
			s.problem = fmt.Errorf("%s", plainError(err))
			return
		}
	}
	secret := &corev1.Secret{}
	err := s.client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
	switch {
	case apierrors.IsNotFound(err):
		s.whyNoMembership = "the cluster has no membership Secret " + objects.AgentNamespace + "/" + objects.MembershipSecret
		return
	case err != nil:
		s.whyNoMembership = "the membership Secret cannot be read: " + plainError(err)
		return
	}
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		s.whyNoMembership = err.Error()
		return
	}
	s.membership = &m
	if s.id == "" {
		s.id = m.ClusterID
	}
}

// findHub opens the broker: as its admin where a context is named, else as one of the members, else where a context is the broker's own.
func (s *session) findHub(ctx context.Context, f reachFlags, sites []*site) (*hub, error) {
	if f.brokerContext != "" {
		c, err := s.connectContext(f.brokerContext)
		if err != nil {
			return nil, err
		}
		return openHub(ctx, c, f.brokerNamespace, "context "+f.brokerContext), nil
	}
	var first *hub
	deaf := map[string]bool{} // servers that did not answer anybody: asking as somebody else would only take as long again
	for _, site := range sites {
		if site.membership == nil || deaf[site.membership.Server] {
			continue
		}
		h := openHub(ctx, connection{config: site.membership.Config()}, site.membership.Namespace, "cluster "+site.id+", with its own credential")
		if h.problem == nil {
			return h, nil
		}
		deaf[site.membership.Server] = !h.refused
		if first == nil {
			first = h
		}
	}
	for _, site := range sites {
		if site.problem != nil {
			continue
		}
		if h := openHub(ctx, site.connection, f.brokerNamespace, "context "+site.name()); h.problem == nil {
			return h, nil
		}
	}
	if first != nil {
		return first, nil
	}
	return &hub{problem: noWay(sites)}, nil
}

// noWay puts into words why there is no way to the broker.
func noWay(sites []*site) error {
	for _, site := range sites {
		switch {
		case site.problem != nil:
			return fmt.Errorf("no cluster could be asked for the way to the broker (%s: %w)", site.name(), site.problem)
		case site.member():
			return fmt.Errorf("%s; ask the broker as its admin with --broker-context", site.whyNoMembership)
		}
	}
	return errors.New("none of the clusters looked into is a member of a clusterset, or a broker: choose another --context, or join it (seamark join)")
}

// openHub asks a broker for its clusterset, which shows that it answers and lets the user in.
func openHub(ctx context.Context, c connection, namespace, via string) *hub {
	h := &hub{namespace: namespace, via: via}
	if h.connection, h.clock, h.problem = timed(c); h.problem != nil {
		return h
	}
	var sets v1alpha1.ClusterSetList
	switch err := h.client.List(ctx, &sets, client.InNamespace(namespace)); {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		h.refused = true
		h.problem = fmt.Errorf("the broker at %s does not accept %s: was the cluster removed, or its credential revoked? (%s)", h.config.Host, via, plainError(err))
	case err != nil:
		h.problem = fmt.Errorf("the broker at %s does not answer %s: %s", h.config.Host, via, plainError(err))
	case len(sets.Items) == 0:
		h.problem = fmt.Errorf("there is no ClusterSet in namespace %s of %s", namespace, h.config.Host)
	default:
		h.set = &sets.Items[0]
	}
	return h
}

// plainError puts a failed request into words without the path of the request, which says nothing to its reader.
func plainError(err error) string {
	var request *url.Error
	var timeout net.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return "the credential is not accepted"
	case apierrors.IsForbidden(err):
		return "not allowed"
	case meta.IsNoMatchError(err):
		return "it does not know the kinds of Seamark"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &request):
		return request.Err.Error()
	}
	return strings.TrimSpace(err.Error())
}
