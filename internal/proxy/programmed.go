package proxy

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/proxy/programmed"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// programmedTimeout is how long a request waits for a running transaction.
const programmedTimeout = 10 * time.Second

// inspect reads the kernel's table and compares it with what this process wrote. The returned table
// has only what packets meet: nothing if the rules are damaged.
func (s *Syncer) inspect() (inKernel *ruleset.Table, damage string) {
	empty := ruleset.NewTable(nil)
	if s.rules == nil {
		return empty, "" // a sync is pending
	}
	content, err := s.table.Read()
	if err != nil {
		return empty, err.Error()
	}
	if content.Damage != "" {
		return empty, content.Damage
	}
	inKernel = ruleset.NewTable(nil)
	if err := inKernel.Load(content.Elements, content.Classes); err != nil {
		return empty, err.Error()
	}
	return inKernel, s.rules.Difference(inKernel)
}

// Programmed returns what the kernel holds for a service.
func (s *Syncer) Programmed(name types.NamespacedName) programmed.Service {
	var out programmed.Service
	h := s.services[name]
	inKernel, damage := s.inspect()
	out.Damage = damage
	if h == nil {
		return out
	}
	out.Refused = h.refusedText
	service := s.vipClaims.ownedPart(name, h.service)
	for _, vip := range service.VIPs {
		if inKernel.HasVIP(vip) {
			out.VIPs = append(out.VIPs, vip.String())
		}
	}
	for i := range service.Ports {
		f := service.Ports[i].Frontend
		port := programmed.Port{Address: netip.AddrPortFrom(f.VIP, f.Port).String(), Protocol: f.Protocol.String(), Endpoints: []string{}}
		for _, e := range inKernel.Reachable(f) {
			port.Endpoints = append(port.Endpoints, e.String())
		}
		if inKernel.HasVIP(f.VIP) {
			out.Ports = append(out.Ports, port)
		}
	}
	return out
}

// ProgrammedNode returns what the kernel holds for all services.
func (s *Syncer) ProgrammedNode() programmed.Node {
	inKernel, damage := s.inspect()
	ports := inKernel.Size(ruleset.Set{Kind: ruleset.Services}) + inKernel.Size(ruleset.Set{Kind: ruleset.Services, IPv6: true})
	return programmed.Node{Ports: ports, Damage: damage}
}

// serveProgrammed answers what this node has programmed, for a service or for all of them.
func (p *proxy) serveProgrammed(w http.ResponseWriter, r *http.Request) {
	service := r.URL.Query().Get(programmed.ServiceParameter)
	namespace, name, ok := strings.Cut(service, "/")
	if service != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")) {
		http.Error(w, "name the service: "+programmed.Path+"?"+programmed.ServiceParameter+"=NAMESPACE/NAME", http.StatusBadRequest)
		return
	}
	answer := make(chan any, 1)
	request := func() {
		if service == "" {
			answer <- p.programmedNode()
		} else {
			answer <- p.programmedService(types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	// The loop computes the answer, because only the loop may use the syncer.
	select {
	case p.requests <- request:
	case <-r.Context().Done():
		return
	case <-time.After(programmedTimeout):
		http.Error(w, "a sync of the kernel is running; retry later", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(<-answer) // the client is gone
}

func (p *proxy) programmedService(name types.NamespacedName) programmed.Service {
	service := p.syncer.Programmed(name)
	service.Node = p.NodeName
	if service.Damage != "" {
		p.repair(service.Damage)
	}
	return service
}

func (p *proxy) programmedNode() programmed.Node {
	node := p.syncer.ProgrammedNode()
	node.Node, node.LastSync, node.FailedSyncs = p.NodeName, p.lastSync, p.failedSyncs
	if node.Damage != "" {
		p.repair(node.Damage)
	}
	return node
}
