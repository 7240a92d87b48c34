package zone

import "math/rand/v2"

// addresses are those of one name in one family, nearest first. The bytes of all lie behind each other, so that preparing a
// thousand costs one allocation and reading them none.
type addresses struct {
	raw   []byte
	order *ordering // nil when all are equally near and alike
	width uint8     // bytes of one: 4 or 16
}

// ordering is what most addresses do not have.
type ordering struct {
	// ends are where each group of equally near addresses ends; nil when all are equally near.
	ends []int
	// weights are each address's share within its group; nil when all are alike.
	weights []uint8
}

// alike is the ordering of addresses without one.
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

// pick returns up to limit indices, in the order in which they go into an answer: the groups in turn, each in a new random
// order. Every order of a group is equally likely where there are no weights. The result may use buffer.
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

// inOrder is 0…n-1, in the buffer if that is long enough.
func ascending(n int, buffer []int32) []int32 {
	if n > len(buffer) {
		buffer = make([]int32, n)
	}
	for i := range n {
		buffer[i] = int32(i)
	}
	return buffer[:n]
}

// shuffle brings the first places of a list into random order (Fisher and Yates); the others do not matter.
func shuffle(list []int32, places int) {
	for i := range min(places, len(list)-1) {
		j := i + rand.IntN(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
}

// draw orders by lot: each place goes to one of those left over, with a chance in proportion to its weight. The lists are as
// long as there are clusters, so the square does no harm.
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
