package proxy

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// programmedTimeout is how long a request waits for a running transaction.
const programmedTimeout = 10 * time.Second

// Programmed returns what the kernel holds for a service.
func (s *Syncer) Programmed(name types.NamespacedName) programmed.Service {
	var out programmed.Service
	h := s.services[name]
	if h == nil || s.rules == nil {
		return out
	}
	out.Refused = h.refusedText
	service := s.vipClaims.ownedPart(name, h.service)
	for _, vip := range service.VIPs {
		out.VIPs = append(out.VIPs, vip.String())
	}
	for i := range service.Ports {
		f := service.Ports[i].Frontend
		port := programmed.Port{Address: netip.AddrPortFrom(f.VIP, f.Port).String(), Protocol: f.Protocol.String(), Endpoints: []string{}}
		for _, e := range s.Endpoints(f) {
			port.Endpoints = append(port.Endpoints, e.String())
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}

// serveProgrammed answers what this node has programmed for a service. The loop computes the
// answer, because only the loop may use the syncer.
func (p *proxy) serveProgrammed(w http.ResponseWriter, r *http.Request) {
	namespace, name, ok := strings.Cut(r.URL.Query().Get(programmed.ServiceParameter), "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		http.Error(w, "name the service: "+programmed.Path+"?"+programmed.ServiceParameter+"=NAMESPACE/NAME", http.StatusBadRequest)
		return
	}
	answer := make(chan programmed.Service, 1)
	request := func() { answer <- p.syncer.Programmed(types.NamespacedName{Namespace: namespace, Name: name}) }
	select {
	case p.requests <- request:
	case <-r.Context().Done():
		return
	case <-time.After(programmedTimeout):
		http.Error(w, "a sync of the kernel is running; retry later", http.StatusServiceUnavailable)
		return
	}
	service := <-answer
	service.Node = p.NodeName
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(service) // the client is gone
}
