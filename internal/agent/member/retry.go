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

// retryDelay returns how long to wait after so many attempts that failed before: about a second
// first, then any part of the spread, and at least as long as the server asked for.
func retryDelay(attempts, members int, asked time.Duration) time.Duration {
	if attempts == 0 {
		return max(firstRetry/2, asked) + rand.N(firstRetry)
	}
	return max(firstRetry/2, asked) + rand.N(spread(members))
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
func RetryDelay(attempts, members int) time.Duration { return retryDelay(attempts, members, 0) }
