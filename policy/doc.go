// Package policy is the language, its checks, its compiler and Decide, the
// executable specification. It knows nothing of kernels, containers or
// daemons, and imports nothing of this module. Everybody may import it.
package policy
