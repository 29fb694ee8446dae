package runner

// Recode decodes a report and encodes it again, for the fuzz test.
func Recode(b []byte) ([]byte, error) {
	var p report
	if err := p.decode(b); err != nil {
		return nil, err
	}
	return p.append(nil), nil
}

// EmptyReport is the bytes of a report of nothing.
func EmptyReport() []byte { return new(report).append(nil) }

// Gather makes the result of a rank, who has measured its own peak, that of all ranks.
func Gather(own RankResult, ranks []RankResult) *Result {
	r := &Result{Peak: own.Peak, PeakClasses: own.PeakClasses}
	r.gather(ranks)
	return r
}
