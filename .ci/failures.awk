# Passes the output of a row on, and appends to the file red a line for each failure, with the command that
# repeats it: the line that begins with "+ ", or the row itself. Known are failed tests of go test and of
# pytest, findings that begin with FILE:LINE:, and commands that failed without either, after a "- ".

function fails(what, more) {
  print "RED " row ": " what ": " command more >>red
  noted = 1
}

function flush_tests(package, folder,    i, more) { # they precede the name of their package
  for (i = 1; i <= n; i++) {
    more = " " folder (tests[i] ~ /^Benchmark/ ? " -run '^$' -bench" : " -run") " '^" tests[i] "$'"
    fails(package tests[i], command ~ /go test/ ? more : "")
  }
  n = late = 0
}

BEGIN { command = ".ci/run row " row }
{ print; fflush() }

/^\+ / { flush_tests("", ""); command = substr($0, 3); noted = 0 }
/^- exit status / { if (!noted) fails(substr($0, 3), "") }

/^--- FAIL: / { tests[++n] = $3 }
/^panic: test timed out/ { late = 1 }
late && /^\t+(Test|Benchmark|Fuzz|Example)/ { tests[++n] = $1 }

/^FAIL\t/ {
  folder = $2
  sub("^" module, ".", folder)
  if (n == 0)
    fails($2 ($3 ~ /^\[/ ? " " $3 " " $4 : ""), command ~ /go test/ ? " " folder : "")
  flush_tests($2 " ", folder)
}
/^ok  \t/ { n = late = 0 }

/^(FAILED|ERROR) [^ ]+\.py/ { fails($2, command ~ /pytest/ ? " '" $2 "'" : "") }

command !~ /go test/ && /^((vet|-): )?[^ :]+\.(go|py):[0-9]+:/ { fails($0, "") }

END { flush_tests("", "") }
