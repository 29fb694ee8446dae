// Package terminal prints names from users and files safely: it shows escape sequences, and
// characters that change the direction of text, in quoted form.
package terminal
