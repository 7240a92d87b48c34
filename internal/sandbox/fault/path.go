package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path is where a fault of the network is.
type Path struct {
	From string
	// To is another cluster, or empty for all other clusters.
	To string
	// OneWay affects only packets from From to To, not those back.
	OneWay bool
}

// CutOff returns the faults that drop all packets.
func (p Path) CutOff(clusters []string) ([]Fault, error) {
	return p.faults(clusters, Fault{Kind: Cut})
}

// Lose returns the faults that drop a share of the packets.
func (p Path) Lose(clusters []string, percent float64) ([]Fault, error) {
	return p.faults(clusters, Fault{Kind: Loss, Percent: percent})
}

// DelayBy returns the faults that delay packets.
func (p Path) DelayBy(clusters []string, delay time.Duration) ([]Fault, error) {
	return p.faults(clusters, Fault{Kind: Delay, Delay: metav1.Duration{Duration: delay}})
}

// faults returns the fault for each direction of the path. Clusters are all that exist.
func (p Path) faults(clusters []string, f Fault) ([]Fault, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if p.From == p.To {
		return nil, fmt.Errorf("there is no network between %s and itself: name two clusters, or one for all its connections", p.From)
	}
	others := []string{p.To}
	if p.To == "" {
		others = slices.DeleteFunc(slices.Clone(clusters), func(name string) bool { return name == p.From })
	}
	if len(others) == 0 {
		return nil, errors.New("the sandbox has only one cluster: create one with more (seamark sandbox up --clusters)")
	}
	var all []Fault
	for _, other := range others {
		f.From, f.To = p.From, other
		all = append(all, f)
		if !p.OneWay {
			f.From, f.To = other, p.From
			all = append(all, f)
		}
	}
	return all, nil
}
