package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

const (
	zone       = "clusterset.local."
	managedBy  = "lighthouse-agent.submariner.io"
	secondsTTL = 5
)

// handler answers queries from the objects of one cluster.
type handler struct {
	cluster string
	objects client.Reader
	turn    atomic.Uint64
}

// ServeDNS answers one query.
func (h *handler) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg)
	reply.SetReply(query)
	reply.Authoritative = true
	if len(query.Question) == 1 {
		h.answer(reply, query.Question[0])
	} else {
		reply.Rcode = dns.RcodeFormatError
	}
	_ = w.WriteMsg(reply) // a client notices by its timeout
}

func (h *handler) answer(reply *dns.Msg, question dns.Question) {
	name, ok := parse(question.Name)
	if !ok {
		reply.Rcode = dns.RcodeNameError
		return
	}
	addresses, found, err := h.resolve(context.Background(), name)
	switch {
	case err != nil:
		reply.Rcode = dns.RcodeServerFailure
	case !found:
		reply.Rcode = dns.RcodeNameError
	case question.Qtype == dns.TypeA:
		for _, a := range addresses {
			header := dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: secondsTTL}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: net.ParseIP(a)})
		}
	}
}

// queried is what a name asks for: a service, that of one cluster, or one host of it.
type queried struct {
	types.NamespacedName
	cluster, host string
}

// parse reads [[HOST.]CLUSTER.]SERVICE.NAMESPACE.svc.clusterset.local.
func parse(name string) (q queried, ok bool) {
	rest, ok := strings.CutSuffix(strings.ToLower(name), ".svc."+zone)
	labels := strings.Split(rest, ".")
	if !ok || len(labels) < 2 || len(labels) > 4 {
		return q, false
	}
	slices.Reverse(labels)
	q.Namespace, q.Name = labels[0], labels[1]
	if len(labels) > 2 {
		q.cluster = labels[2]
	}
	if len(labels) > 3 {
		q.host = labels[3]
	}
	return q, true
}

// resolve returns the addresses for a name. found is false for NXDOMAIN.
func (h *handler) resolve(ctx context.Context, q queried) (addresses []string, found bool, err error) {
	si := &mcsv1alpha1.ServiceImport{}
	err = h.objects.Get(ctx, q.NamespacedName, si)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read ServiceImport %s: %w", q.NamespacedName, err)
	}
	if exchanged(si) {
		return nil, false, nil
	}
	if len(si.Spec.IPs) > 0 && q.cluster == "" {
		return si.Spec.IPs[:1], true, nil
	}
	list := &discoveryv1.EndpointSliceList{}
	err = h.objects.List(ctx, list, client.InNamespace(q.Namespace), client.MatchingLabels{
		discoveryv1.LabelManagedBy: managedBy, mcsv1alpha1.LabelServiceName: q.Name,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the slices of %s: %w", q.NamespacedName, err)
	}
	if si.Spec.Type == mcsv1alpha1.Headless {
		addresses, found = headless(list.Items, q)
		return addresses, found, nil
	}
	return h.oneCluster(list.Items, q), q.host == "", nil
}

// exchanged reports whether agents of Lighthouse exchange a ServiceImport: it is no service.
func exchanged(si *mcsv1alpha1.ServiceImport) bool {
	_, label := si.Labels[mcsv1alpha1.LabelServiceName]
	_, annotation := si.Annotations[mcsv1alpha1.LabelServiceName]
	return label || annotation
}

// headless returns the ready endpoints that a name asks for. The name of a host that does not exist
// is not found.
func headless(list []discoveryv1.EndpointSlice, q queried) (addresses []string, found bool) {
	for _, s := range list {
		if q.cluster != "" && s.Labels[mcsv1alpha1.LabelSourceCluster] != q.cluster {
			continue
		}
		for _, e := range s.Endpoints {
			if q.host == "" || hostOf(e) == q.host {
				addresses = append(addresses, ready(e)...)
			}
		}
	}
	return addresses, q.host == "" || len(addresses) > 0
}

// hostOf returns the name of an endpoint: its hostname, else that of its pod.
func hostOf(e discoveryv1.Endpoint) string {
	if host := ptr.Deref(e.Hostname, ""); host != "" || e.TargetRef == nil {
		return host
	}
	return e.TargetRef.Name
}

// oneCluster returns the ClusterIP of one cluster that is ready: the one that the name asks for, or
// this one, or the next in turn.
func (h *handler) oneCluster(list []discoveryv1.EndpointSlice, q queried) []string {
	byCluster, clusters := map[string][]string{}, []string(nil)
	for _, s := range list {
		cluster := s.Labels[mcsv1alpha1.LabelSourceCluster]
		for _, e := range s.Endpoints {
			byCluster[cluster] = append(byCluster[cluster], ready(e)...)
		}
		if len(byCluster[cluster]) > 0 && !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	switch {
	case q.cluster != "":
		return byCluster[q.cluster]
	case len(byCluster[h.cluster]) > 0:
		return byCluster[h.cluster]
	case len(clusters) == 0:
		return nil
	}
	slices.Sort(clusters)
	return byCluster[clusters[h.turn.Add(1)%uint64(len(clusters))]]
}

func ready(e discoveryv1.Endpoint) []string {
	if !ptr.Deref(e.Conditions.Ready, true) {
		return nil
	}
	return e.Addresses
}
