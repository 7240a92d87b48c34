package member

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A server that is back after an outage is asked by all members at once. So that it can answer,
// they come back evenly over a time that grows with their number: a thousand members over a minute.
// Only the first attempt is made soon: an outage may concern one member, and be short.
const (
	firstRetry = time.Second
	// PerMember is how long the broker has for one member when all ask it at once. A member begins
	// six watches then, and lists what it cannot resume.
	PerMember = 60 * time.Millisecond
	// unknownSpread is the time while it is not known how many members there are.
	unknownSpread = 4 * time.Second
	// maxSpread bounds it, and what a server may ask for: a wrong answer must not stop a member.
	maxSpread = time.Minute
)

// spread returns the time over which so many members come back.
func spread(members int) time.Duration {
	if members == 0 {
		return unknownSpread
	}
	return min(max(time.Duration(members)*PerMember, firstRetry), maxSpread)
}

// failures are attempts that failed one after another.
type failures struct {
	all int
	// answered are those at the end to which the server had an answer: that it starts, or is too busy.
	answered int
}

// delay returns how long to wait: about a second first, then any part of the spread, and at least
// as long as the server asked for. A server that answers is nearly back, and the members that ask
// it have waited for their place already, so they wait for a quarter of the spread, and twice as
// long each time: who waits for the whole spread again comes back after all others.
func (f failures) delay(members int, asked time.Duration) time.Duration {
	window := firstRetry
	if f.all > 0 {
		window = spread(members)
	}
	if f.answered > 0 {
		window = max(window>>max(3-f.answered, 0), firstRetry)
	}
	return max(firstRetry/2, asked) + rand.N(window)
}

// retryAfter returns for how long a server asked to be left alone; 0 if it did not.
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 3600))*time.Second, maxSpread)
}

// RetryDelay returns how long one of so many members waits after so many attempts to read something
// of the broker that failed.
func RetryDelay(attempts, members int) time.Duration {
	return failures{all: attempts}.delay(members, 0)
}
