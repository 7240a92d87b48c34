package member

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A server that is back after an outage is asked by all members at once. So that it can answer,
// they wait the longer between two attempts the more they are: together they begin some 30 watches
// of each kind per second, and a thousand members have come back after about a minute.
const (
	firstRetry = time.Second
	// PerMember is how long the broker has for one member when all ask it at once.
	PerMember = 30 * time.Millisecond
	// unknownSpread is the longest interval while it is not known how many members there are.
	unknownSpread = 4 * time.Second
	// maxSpread bounds what a server may ask for, so that a wrong answer does not stop a member.
	maxSpread = time.Minute
)

// spread returns the longest interval between two attempts of one of so many members.
func spread(members int) time.Duration {
	if members == 0 {
		return unknownSpread
	}
	return min(max(time.Duration(members)*PerMember, firstRetry), maxSpread)
}

// retryDelay returns how long to wait after so many attempts that failed: twice as long each time,
// up to the spread, and at least as long as the server asked for. Half of it is random.
func retryDelay(attempts, members int, asked time.Duration) time.Duration {
	delay := spread(members)
	if attempts < 6 { // more would exceed maxSpread
		delay = min(delay, firstRetry<<attempts)
	}
	return max(delay/2, asked) + rand.N(delay)
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
