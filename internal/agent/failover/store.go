package failover

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// Store keeps the unreachable clusters in a ClusterProperty, which exists while there are any.
type Store struct {
	Client client.Client // uncached

	mu   sync.Mutex
	last *aboutv1beta1.ClusterProperty // as the API server last returned it, nil if it did not exist
}

// Load returns the value of the property, "" if it does not exist.
func (s *Store) Load(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(ctx); err != nil || s.last == nil {
		return "", err
	}
	return s.last.Spec.Value, nil
}

// Save writes the property, or deletes it if no cluster is unreachable. It needs one request, and
// two more if another client changed the property.
func (s *Store) Save(ctx context.Context, unreachable reachable.Unreachables) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := reachable.Property(unreachable)
	err := s.write(ctx, want)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		if err = s.read(ctx); err == nil && (s.last == nil || s.last.Spec.Value != want.Spec.Value) {
			err = s.write(ctx, want)
		}
	}
	if err != nil {
		return fmt.Errorf("write ClusterProperty %s: %w", want.Name, err)
	}
	return nil
}

func (s *Store) read(ctx context.Context) error {
	have := reachable.Property(nil)
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(have), have)
	switch {
	case apierrors.IsNotFound(err):
		s.last = nil
		return nil
	case err != nil:
		return fmt.Errorf("read ClusterProperty %s: %w", have.Name, err)
	}
	s.last = have
	return nil
}

func (s *Store) write(ctx context.Context, want *aboutv1beta1.ClusterProperty) error {
	if want.Spec.Value == "" {
		err := client.IgnoreNotFound(s.Client.Delete(ctx, want))
		if err == nil {
			s.last = nil
		}
		return err
	}
	if s.last == nil {
		created := want.DeepCopy()
		err := s.Client.Create(ctx, created)
		if err == nil {
			s.last = created
		}
		return err
	}
	updated := s.last.DeepCopy()
	updated.Spec.Value = want.Spec.Value
	err := s.Client.Update(ctx, updated)
	if err == nil {
		s.last = updated
	}
	return err
}
