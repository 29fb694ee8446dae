package minimalloc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/placement"
)

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       minimalloc.Instance
	}{
		{"nothing", "id,lower,upper,size\n", minimalloc.Instance{}},
		{"plain", "id,lower,upper,size\nb1,0,3,4\nb2,-3,9,4\n", minimalloc.Instance{
			IDs:     []string{"b1", "b2"},
			Problem: placement.Problem{Buffers: []placement.Buffer{{Lower: 0, Upper: 3, Size: 4}, {Lower: -3, Upper: 9, Size: 4}}},
		}},
		{"all columns, another order", "\ufeffsize, upper ,lower,id,gaps,hint,alignment,offset\r\n8,20,0,x,2-3  5-9,-1,4,16\r\n\r\n", minimalloc.Instance{
			IDs: []string{"x"},
			Problem: placement.Problem{Buffers: []placement.Buffer{
				{Lower: 0, Upper: 20, Size: 8, Align: 4, Gaps: []placement.Gap{{Lower: 2, Upper: 3}, {Lower: 5, Upper: 9}}},
			}},
			Offsets: []int64{16},
		}},
		{"the last unit alive", "buffer_id,start,end,size,gaps\n0,1,8,2,2-2 4-6\n", minimalloc.Instance{
			IDs: []string{"0"},
			Problem: placement.Problem{Buffers: []placement.Buffer{
				{Lower: 1, Upper: 9, Size: 2, Gaps: []placement.Gap{{Lower: 2, Upper: 3}, {Lower: 4, Upper: 7}}},
			}},
		}},
		{"times below 0 in gaps", "buffer,begin,upper,size,gaps\n0,-10,1,2,-9--5 -3-0\n", minimalloc.Instance{
			IDs: []string{"0"},
			Problem: placement.Problem{Buffers: []placement.Buffer{
				{Lower: -10, Upper: 1, Size: 2, Gaps: []placement.Gap{{Lower: -9, Upper: -5}, {Lower: -3, Upper: 0}}},
			}},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := minimalloc.Read(strings.NewReader(test.text))
			require.NoError(t, err)
			require.Equal(t, &test.want, got)
		})
	}
}

func TestFaultsHaveAPlace(t *testing.T) {
	const columns = "id,lower,upper,size\n"
	for _, test := range []struct{ text, want string }{
		{"", "1:1: found the end of the file, expected the names of the columns"},
		{"id,lower,upper\n", "1:1: found no column size"},
		{"id,lower,upper,weight\n", `1:16: found "weight", expected a column`},
		{"id,lower,upper,end,size\n", `1:16: found "end", expected another column`},
		{columns + "0,1,2\n", "2:5: found 3 fields, expected 4"},
		{columns + "0,1,2,3,4\n", "2:7: found 5 fields, expected 4"},
		{columns + "0,1,2,3\n1,x,2,3\n", `3:3: found "x", expected a time`},
		{columns + "0,1, 1,3\n", `2:6: found "1", expected a time after 1`},
		{columns + "0,5,1,3\n", `2:5: found "1", expected a time after 5`},
		{columns + "0,1,2,0\n", `2:7: found "0", expected a size, an integer from 1`},
		{columns + "0,1,2,-3\n", `2:7: found "-3", expected a size`},
		{columns + "0,1,9223372036854775808,3\n", `2:5: found "9223372036854775808", expected a time`},
		{columns + "0,1,2,9223372036854775807\n1,5,6,1\n", "3:7: found 1, expected less: all sizes and alignments up to here sum to more than"},
		{"size,id,lower,upper,alignment\n9223372036854775800,0,1,2,8\n", "2:1: found 9223372036854775800, expected less"},
		{columns + "a,1,2,3\n\nb,1,2,3\na,1,2,3\n", `5:1: found "a", expected another name: the buffer of line 2 has it`},
		{"id,lower,end,size\n0,1,9223372036854775807,3\n", `2:5: found "9223372036854775807", expected a time`},
		{"id,lower,upper,size,alignment\n0,1,2,3,6\n", "2:9: found 6, expected a power of two"},
		{"id,lower,upper,size,alignment\n0,1,2,3,0\n", `2:9: found "0", expected an alignment`},
		{"id,lower,upper,size,hint\n0,1,2,3,\n", `2:9: found "", expected a hint`},
		{"id,lower,upper,size,offset\n0,1,2,3,z\n", `2:9: found "z", expected an offset`},
		{"id,lower,upper,size,gaps\n0,1,9,3,2-3@4:5\n", `2:9: found "2-3@4:5", expected a gap without a window`},
		{"id,lower,upper,size,gaps\n0,1,9,3,7\n", `2:9: found "7", expected a gap such as 3-7`},
		{"id,lower,upper,size,gaps\n0,1,9,3,-\n", `2:9: found "-", expected a gap such as 3-7`},
		{"id,lower,upper,size,gaps\n0,1,9,3,4-4\n", `2:9: found "4-4", expected a gap that ends behind its beginning`},
		{"id,lower,upper,size,gaps\n0,1,9,3,4-6 5-7\n", `2:9: found "5-7", expected a gap after 6`},
		{"id,lower,upper,size,gaps\n0,1,9,3,4-9\n", `2:9: found "4-9", expected a gap before 9`},
		{columns + strings.Repeat("7", 1<<20) + "\n", "2:1: found a line of more than 1048576 bytes"},
	} {
		_, err := minimalloc.Read(strings.NewReader(test.text))
		require.ErrorIs(t, err, minimalloc.ErrFormat)
		require.ErrorContains(t, err, test.want)
	}
}

func TestFaultsHaveTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	require.NoError(t, os.WriteFile(path, []byte("id,lower,upper,size\n0,1,2,big\n"), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	_, err = minimalloc.Read(file)
	require.ErrorContains(t, err, path+`:2:7: found "big", expected a size`)
}

// brokenReader fails in the middle of a file.
type brokenReader struct{ text *strings.Reader }

var errBroken = errors.New("broken")

func (r brokenReader) Read(p []byte) (int, error) {
	if r.text.Len() == 0 {
		return 0, errBroken
	}
	return r.text.Read(p)
}

// An error of the system already names its file.
func TestFilesAreNamedOnce(t *testing.T) {
	folder := t.TempDir()
	file, err := os.Open(folder)
	require.NoError(t, err)
	defer file.Close()
	_, err = minimalloc.Read(file)
	require.ErrorContains(t, err, "minimalloc: ")
	require.Equal(t, 1, strings.Count(err.Error(), folder), "%v", err)
}

func TestReadError(t *testing.T) {
	_, err := minimalloc.Read(brokenReader{strings.NewReader("id,lower,upper,size\n0,1,2,3\n")})
	require.ErrorIs(t, err, errBroken)
}

func TestTooManyBuffers(t *testing.T) {
	text := "id,lower,upper,size,gaps\na,0,9,1,\nb,0,9,1,2-3 4-5\n"
	_, err := minimalloc.ReadAtMost(strings.NewReader(text), 4)
	require.NoError(t, err)
	_, err = minimalloc.ReadAtMost(strings.NewReader(text), 3)
	require.ErrorContains(t, err, "3:1: found more than 3 buffers and gaps")
}

// An endless file is not read forever, even if none of it is kept.
func TestTooManyBytes(t *testing.T) {
	testkit.Slow(t)
	header := "id,lower,upper,size\n"
	_, err := minimalloc.Read(io.MultiReader(strings.NewReader(header), blanks{}))
	require.ErrorIs(t, err, minimalloc.ErrFormat)
	require.ErrorContains(t, err, fmt.Sprintf("%d:1: found more than %d bytes", 2+minimalloc.MaxBytes-len(header), minimalloc.MaxBytes))
}

// blanks is an endless sequence of blank lines.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestWrite(t *testing.T) {
	in := &minimalloc.Instance{
		IDs: []string{"a", "b"},
		Problem: placement.Problem{Buffers: []placement.Buffer{
			{Lower: 0, Upper: 9, Size: 4, Align: 4, Gaps: []placement.Gap{{Lower: 2, Upper: 3}, {Lower: 5, Upper: 8}}},
			{Lower: -1, Upper: 9, Size: 5},
		}},
		Offsets: []int64{8, 0},
	}
	var out bytes.Buffer
	require.NoError(t, minimalloc.Write(&out, in))
	require.Equal(t, "id,lower,upper,size,alignment,gaps,offset\na,0,9,4,4,2-3 5-8,8\nb,-1,9,5,1,,0\n", out.String())

	in.IDs, in.Offsets, in.Problem.Buffers = nil, nil, in.Problem.Buffers[1:]
	out.Reset()
	require.NoError(t, minimalloc.Write(&out, in))
	require.Equal(t, "id,lower,upper,size\n0,-1,9,5\n", out.String())
}

func TestWriteRefuses(t *testing.T) {
	one := placement.Problem{Buffers: []placement.Buffer{{Lower: 0, Upper: 1, Size: 1}}}
	for _, in := range []minimalloc.Instance{
		{Problem: one, IDs: []string{"a,b"}},
		{Problem: one, IDs: []string{" a"}},
		{Problem: one, IDs: []string{"a\n"}},
		{Problem: one, IDs: []string{"a", "b"}},
		{Problem: one, Offsets: []int64{1, 2}},
	} {
		require.ErrorIs(t, minimalloc.Write(&bytes.Buffer{}, &in), minimalloc.ErrFormat)
	}
	one.Buffers[0].Size = 0
	require.ErrorIs(t, minimalloc.Write(&bytes.Buffer{}, &minimalloc.Instance{Problem: one}), placement.ErrProblem)
}

// Every accepted file is valid, and is read as the same instance after it is written.
func FuzzRead(f *testing.F) {
	f.Add("id,lower,upper,size\nb1,0,3,4\n")
	f.Add("size,upper,lower,id,gaps,hint,alignment,offset\n8,20,0,x,2-3 5-9,-1,4,16\n")
	f.Add("buffer_id,start,end,size,gaps\n0,-1,8,2,0-2 -4--6@1:2\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := minimalloc.Read(strings.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, minimalloc.ErrFormat)
			return
		}
		require.NoError(t, in.Problem.Validate())
		var out bytes.Buffer
		if err := minimalloc.Write(&out, in); err != nil {
			require.ErrorContains(t, err, "the name") // contains a line end of its own
			return
		}
		again, err := minimalloc.Read(&out)
		require.NoError(t, err)
		for i := range in.Problem.Buffers {
			in.Problem.Buffers[i].Align = max(in.Problem.Buffers[i].Align, 1)
			again.Problem.Buffers[i].Align = max(again.Problem.Buffers[i].Align, 1)
		}
		require.Equal(t, in, again)
	})
}
