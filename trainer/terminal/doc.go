// Package terminal is for printing names that users and files give: escape sequences, and
// characters that turn the direction of writing, are shown and not obeyed.
package terminal
