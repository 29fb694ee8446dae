package units_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/units"
)

func Example() {
	fmt.Println(units.Size(1_499_904), units.Exactly(1_499_904), units.Number(51_200, "microbatch"), units.Seconds(0.0186), units.Percent(0.02, 1))
	// Output:
	// 1.4 MiB 1.4 MiB (1,499,904 bytes) 51,200 microbatches 18.6 ms 2.0 %
}

func TestWritten(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 245_760: "240 KiB", 1_553_652: "1.5 MiB", 5 << 30: "5.0 GiB", 3 << 40: "3.0 TiB", 5 << 50: "5.0 PiB", -2048: "-2.0 KiB",
		math.MaxInt64: "8.0 EiB", math.MinInt64: "-8.0 EiB",
	} {
		require.Equal(t, want, units.Size(n))
	}
	for n, want := range map[int64]string{0: "0", 123: "123", 1234: "1,234", -123: "-123", -1_234_567: "-1,234,567", math.MinInt64: "-9,223,372,036,854,775,808"} {
		require.Equal(t, want, units.Count(n))
	}
	require.Equal(t, "1000 B", units.Exactly(1000))
	for x, want := range map[float64]string{0: "0", 100: "100", 1.5: "1.5", 0.12345: "0.123", -2.9996: "-3"} {
		require.Equal(t, want, units.Decimal(x, 3))
	}
	for s, want := range map[float64]string{0: "0.0 µs", 2.5e-6: "2.5 µs", 0.25: "250.0 ms", 61: "61.00 s"} {
		require.Equal(t, want, units.Seconds(s))
	}
	for value, want := range map[float64]int64{2.5: 3, -2.4: -2, 1 << 63: math.MaxInt64, -1 << 63: math.MinInt64, math.NaN(): 0, math.Inf(1): math.MaxInt64, -1e300: math.MinInt64} {
		require.Equal(t, want, units.Round(value), value)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1000": 1000, "512KiB": 512 << 10, "80G": 80 << 30, "2k": 2048, "1mib": 1 << 20, "3gb": 3e9, "1.5GiB": 3 << 29, "80 GB": 80e9, "1024TiB": 1 << 50} {
		n, err := units.ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "MiB", "-1", "NaN", "1e30", "12 bits", "1025TiB"} {
		_, err := units.ParseSize(text)
		require.ErrorIs(t, err, units.ErrSize, text)
	}
}

func TestRanks(t *testing.T) {
	for want, ranks := range map[string][]int{"rank 3": {3}, "ranks 1 and 2": {1, 2}, "ranks 1, 4-7 and 9": {1, 4, 5, 6, 7, 9}, "ranks 0-2": {0, 1, 2}} {
		require.Equal(t, want, units.Ranks(ranks))
	}
	var odd []int
	for rank := 1; rank < 100; rank += 2 {
		odd = append(odd, rank)
	}
	require.Contains(t, units.Ranks(odd), "45, 47 and others, 50 in all")
}
