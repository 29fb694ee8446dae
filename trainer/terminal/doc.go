// Package terminal keeps names that users and files give from commanding the terminal on
// which a program prints them: escape sequences, and characters that turn the direction of
// writing, are shown and not obeyed.
package terminal
