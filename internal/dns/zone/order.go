package zone

import "math/rand/v2"

// addresses are the addresses of one name in one family, nearest first. Their bytes lie in one
// slice, so a thousand of them cost one allocation to prepare and none to read.
type addresses struct {
	raw   []byte
	order *ordering // nil if all are equally near and weighted
	width uint8     // bytes of one: 4 or 16
}

// ordering groups and weights addresses. Most names do not need one.
type ordering struct {
	// ends are the indexes at which each group of equally near addresses ends. It is nil if all are
	// equally near.
	ends []int
	// weights are the addresses' shares within their group. It is nil if all are equal.
	weights []uint8
}

// uniform is the ordering of addresses without one: all are equally near, with equal weights.
var uniform ordering

func (a *addresses) len() int {
	if a.width == 0 {
		return 0
	}
	return len(a.raw) / int(a.width)
}

func (a *addresses) at(i int) []byte {
	width := int(a.width)
	return a.raw[i*width : (i+1)*width : (i+1)*width]
}

// pick returns up to limit indexes in the order in which the addresses go into an answer: group by
// group, each in a new random order. Without weights every order of a group is equally likely. The
// result may use buffer.
func (a *addresses) pick(limit int, buffer []int32) []int32 {
	n := a.len()
	order := ascending(n, buffer)
	limit = min(limit, n)
	by := a.order
	if by == nil {
		by = &uniform
	}
	start := 0
	for group := 0; start < limit; group++ {
		end := n
		if group < len(by.ends) {
			end = by.ends[group]
		}
		if by.weights == nil {
			shuffle(order[start:end], limit-start)
		} else {
			by.shuffleWeighted(order[start:end])
		}
		start = end
	}
	return order[:limit]
}

// ascending returns 0…n-1, in the buffer if it is long enough.
func ascending(n int, buffer []int32) []int32 {
	if n > len(buffer) {
		buffer = make([]int32, n)
	}
	for i := range n {
		buffer[i] = int32(i)
	}
	return buffer[:n]
}

// shuffle puts the first places of a list into random order (Fisher-Yates). The order of the others
// is undefined.
func shuffle(list []int32, places int) {
	for i := range min(places, len(list)-1) {
		j := i + rand.IntN(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
}

// shuffleWeighted draws each place from the indexes left, with a chance in proportion to their
// weights. It is quadratic in the number of clusters, which is small.
func (o *ordering) shuffleWeighted(list []int32) {
	total := 0
	for _, i := range list {
		total += int(o.weights[i])
	}
	for place := range list {
		if total <= 0 {
			shuffle(list[place:], len(list))
			return
		}
		lot := rand.IntN(total)
		for j := place; j < len(list); j++ {
			if lot -= int(o.weights[list[j]]); lot < 0 {
				list[place], list[j] = list[j], list[place]
				break
			}
		}
		total -= int(o.weights[list[place]])
	}
}
