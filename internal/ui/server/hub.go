package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/seamark-dev/seamark/internal/ui/state"
)

// maxBehind is how many messages a viewer may be behind before it is dropped. It connects again and
// gets what it missed from the history.
const maxBehind = 64

// Hub holds the history of the page and sends each difference to all viewers. A difference is
// encoded once, however many viewers there are.
type Hub struct {
	mu      sync.Mutex
	history *state.History
	viewers map[*viewer]bool
	// encoded is the newest snapshot as JSON, nil until a viewer asks for it.
	encoded []byte
}

type viewer struct {
	messages chan []byte
}

// NewHub returns a hub whose history begins with a snapshot.
func NewHub(h *state.History) *Hub { return &Hub{history: h, viewers: map[*viewer]bool{}} }

// Publish adds a difference that leads to a snapshot, and sends it to all viewers. An empty one
// only replaces the newest snapshot.
func (h *Hub) Publish(d state.Delta, after *state.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.encoded = nil
	if d.Empty() {
		h.history.Refresh(after)
		return
	}
	h.history.Add(d, after)
	if len(h.viewers) == 0 {
		return
	}
	message, err := encodeMessage(&d)
	if err != nil {
		return // no value of a difference fails to encode
	}
	for v := range h.viewers {
		select {
		case v.messages <- message:
		default:
			delete(h.viewers, v)
			close(v.messages)
		}
	}
}

// encodeMessage returns a difference as a message of server-sent events.
func encodeMessage(d *state.Delta) ([]byte, error) {
	content, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "id: %d\nevent: delta\ndata: %s\n\n", d.Seq, content), nil
}

// resetMessage makes a viewer load the whole state: what it has is too old, or of another server.
var resetMessage = []byte("event: reset\ndata: {}\n\n")

// subscribe returns a viewer that gets all differences after the one with a number.
func (h *Hub) subscribe(last int64) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	missed, ok := h.history.Since(last)
	v := &viewer{messages: make(chan []byte, maxBehind+len(missed))}
	h.viewers[v] = true
	if !ok {
		v.messages <- resetMessage
		return v
	}
	for i := range missed {
		if message, err := encodeMessage(&missed[i]); err == nil {
			v.messages <- message
		}
	}
	return v
}

func (h *Hub) unsubscribe(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers[v] {
		delete(h.viewers, v)
		close(v.messages)
	}
}

// moment is the answer to a request for a state.
type moment struct {
	// Live reports whether the page follows a clusterset, and does not show a file.
	Live bool `json:"live"`
	// Oldest and Newest are the numbers of the snapshots that the history reaches.
	Oldest   int64           `json:"oldest"`
	Newest   int64           `json:"newest"`
	Snapshot *state.Snapshot `json:"snapshot"`
}

// snapshotJSON returns the snapshot with a number as JSON; the newest for a negative one. ok is
// false if the history does not reach back that far.
func (h *Hub) snapshotJSON(seq int64, live bool) (content []byte, ok bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq < 0 && h.encoded != nil {
		return h.encoded, true, nil
	}
	s := h.history.Now()
	if seq >= 0 {
		if s, ok = h.history.At(seq); !ok {
			return nil, false, nil
		}
	}
	content, err = json.Marshal(moment{Live: live, Oldest: h.history.Base.Seq, Newest: h.history.Now().Seq, Snapshot: s})
	if err == nil && seq < 0 {
		h.encoded = content
	}
	return content, true, err
}

// entries returns the timeline.
func (h *Hub) entries() []state.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.history.Entries()
}

// now returns the newest snapshot.
func (h *Hub) now() *state.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.history.Now()
}

// copyHistory returns a history that does not change any more.
func (h *Hub) copyHistory() *state.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	copied := *h.history
	copied.Deltas = slices.Clone(h.history.Deltas)
	return &copied
}
