package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size formats a number of bytes, such as "3.4 MiB".
func Size(n int64) string {
	value, sign := float64(n), ""
	if n < 0 {
		value, sign = -value, "-"
	}
	if value < 1024 {
		return sign + strconv.FormatFloat(value, 'f', -1, 64) + " B"
	}
	names := [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := -1
	for value >= 1024 && i < len(names)-1 {
		value /= 1024
		i++
	}
	digits := 1
	if value >= 100 {
		digits = 0
	}
	return sign + strconv.FormatFloat(value, 'f', digits, 64) + " " + names[i]
}

// Exactly formats a size and, if that rounds, the bytes: "3.4 MiB (3,565,158 bytes)".
func Exactly(n int64) string {
	if n > -1024 && n < 1024 {
		return Size(n)
	}
	return Size(n) + " (" + Count(n) + " bytes)"
}

// Count formats a whole number with thousands separated by commas.
func Count(n int64) string {
	digits, sign := strconv.FormatInt(n, 10), ""
	if n < 0 {
		digits, sign = digits[1:], "-"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Number formats a number of things: "1 rank", "51,200 microbatches".
func Number[N int | int64](n N, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "ch"):
		thing += "es"
	default:
		thing += "s"
	}
	return Count(int64(n)) + " " + thing
}

// Ranks formats a list of ranks in ascending order, with runs as ranges: "rank 3", "ranks 1, 4-7
// and 9". It shortens long lists.
func Ranks(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + strconv.Itoa(ranks[0])
	}
	var words []string
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		switch {
		case end-i < 2:
			for _, rank := range ranks[i : end+1] {
				words = append(words, strconv.Itoa(rank))
			}
		default:
			words = append(words, fmt.Sprintf("%d-%d", ranks[i], ranks[end]))
		}
		i = end + 1
	}
	if len(words) > 24 {
		words = append(words[:24], fmt.Sprintf("others, %d in all", len(ranks)))
	}
	last := len(words) - 1
	if last == 0 {
		return "ranks " + words[0]
	}
	return "ranks " + strings.Join(words[:last], ", ") + " and " + words[last]
}

// Seconds formats a time in seconds, such as "12.5 ms".
func Seconds(s float64) string {
	switch {
	case s < 1e-3:
		return strconv.FormatFloat(s*1e6, 'f', 1, 64) + " µs"
	case s < 1:
		return strconv.FormatFloat(s*1e3, 'f', 1, 64) + " ms"
	}
	return strconv.FormatFloat(s, 'f', 2, 64) + " s"
}

// Decimal formats a number with at most the given number of decimals, without trailing zeros.
func Decimal(x float64, decimals int) string {
	text := strconv.FormatFloat(x, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Percent formats a fraction of 1 in percent, such as "12.5 %" with one decimal.
func Percent(fraction float64, decimals int) string {
	return strconv.FormatFloat(100*fraction, 'f', decimals, 64) + " %"
}

// Round returns the nearest whole number within the range of an int64, and 0 for NaN.
func Round(value float64) int64 {
	switch value = math.Round(value); {
	case math.IsNaN(value):
		return 0
	case value >= math.MaxInt64:
		return math.MaxInt64
	case value <= math.MinInt64:
		return math.MinInt64
	}
	return int64(value)
}

// ErrSize is wrapped by errors of ParseSize.
var ErrSize = errors.New("no size")

// ParseSize reads a number of bytes from 0 to 1024TiB: 1000, 512KiB, 1.5GiB, 80G, 80 GB.
// K, M, G and T alone are KiB, MiB, GiB and TiB. The case of letters does not matter.
func ParseSize(text string) (int64, error) {
	word, unit := text, 1.0
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{
		{"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}, {"TIB", 1 << 40},
		{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
		{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40},
	} {
		if digits, ok := strings.CutSuffix(strings.ToUpper(word), u.suffix); ok {
			word, unit = strings.TrimSpace(digits), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || !(n*unit >= 0 && n*unit <= 1<<50) {
		return 0, fmt.Errorf("%q is %w: give 0 to 1024TiB, as a number of bytes, or with a unit such as KiB, M, GB or GiB", text, ErrSize)
	}
	return int64(n * unit), nil
}
