package limits

import (
	"sync"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// contentFactor is how often the limits of a member fit into what a cache holds of it. Which of
	// its services are within the limits is decided by their age, when all are known.
	contentFactor = 2
	// relistInterval is how often dropped content is read again at most.
	relistInterval = time.Minute
)

// Cost is what an object of a member counts.
type Cost struct{ Services, Endpoints, Bytes int }

func (c Cost) plus(d Cost) Cost {
	return Cost{c.Services + d.Services, c.Endpoints + d.Endpoints, c.Bytes + d.Bytes}
}

func (c Cost) minus(d Cost) Cost {
	return Cost{c.Services - d.Services, c.Endpoints - d.Endpoints, c.Bytes - d.Bytes}
}

func (c Cost) fits(l objects.Limits) bool {
	return c.Services <= contentFactor*l.Services && c.Endpoints <= contentFactor*l.Endpoints && c.Bytes <= contentFactor*l.Bytes
}

// Content bounds what the cache of the broker holds of each member: a member that publishes far
// more than its limits must not fill the memory of the others. It decides object by object, as they
// arrive, so it is in force while a cache lists for the first time. It is safe for concurrent use.
type Content struct {
	mu       sync.Mutex
	objects  map[string]held
	members  map[string]*memberContent
	relisted time.Time
}

type held struct {
	member  string
	cost    Cost
	dropped bool
}

type memberContent struct {
	kept, published Cost
	dropped         int
}

// NewContent returns the Content of an empty cache.
func NewContent() *Content {
	return &Content{objects: map[string]held{}, members: map[string]*memberContent{}}
}

// Keep reports whether the cache holds the content of an object that was added or changed, or only
// its name.
func (c *Content) Keep(object, member string, cost Cost, limits objects.Limits) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(object)
	m := c.members[member]
	if m == nil {
		m = &memberContent{}
		c.members[member] = m
	}
	m.published = m.published.plus(cost)
	keep := m.kept.plus(cost).fits(limits)
	if keep {
		m.kept = m.kept.plus(cost)
	} else {
		m.dropped++
	}
	c.objects[object] = held{member, cost, !keep}
	return keep
}

// Forget removes an object that was deleted.
func (c *Content) Forget(object string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(object)
}

func (c *Content) forget(object string) {
	h, ok := c.objects[object]
	if !ok {
		return
	}
	delete(c.objects, object)
	m := c.members[h.member]
	m.published = m.published.minus(h.cost)
	if h.dropped {
		m.dropped--
	} else {
		m.kept = m.kept.minus(h.cost)
	}
	if m.published == (Cost{}) && m.dropped == 0 {
		delete(c.members, h.member)
	}
}

// RelistDue reports whether dropped content fits now, so that the cache should list again. It does
// so at most once a minute.
func (c *Content) RelistDue(limitsOf func(member string) objects.Limits, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.relisted) < relistInterval {
		return false
	}
	for id, m := range c.members {
		if m.dropped > 0 && m.published.fits(limitsOf(id)) {
			c.relisted = now
			return true
		}
	}
	return false
}
