// Package page owns the web page: how the documents of pkg/web/api look to a
// person. All of it is rendered here; the script in the browser only fetches the
// same fragments again and puts them in place.
//
// It must not decide what a document means, hold state of a unit, or answer
// with anything that another host would have to serve.
package page
