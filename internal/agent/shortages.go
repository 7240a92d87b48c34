package agent

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// shortages records services that could not get a clusterset IP, for their Ready condition.
type shortages struct {
	mu      sync.Mutex
	reasons map[types.NamespacedName]error
	// changed is called with a service whose entry was added, changed or removed.
	changed func(...types.NamespacedName)
}

func (s *shortages) set(service types.NamespacedName, reason error) {
	s.mu.Lock()
	old := s.reasons[service]
	if reason == nil {
		delete(s.reasons, service)
	} else {
		s.reasons[service] = reason
	}
	s.mu.Unlock()
	if fmt.Sprint(old) != fmt.Sprint(reason) {
		s.changed(service)
	}
}

func (s *shortages) get(service types.NamespacedName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reasons[service]
}
