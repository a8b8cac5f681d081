package policy

// TellingNames is for the tests that check an automaton state by state.
var TellingNames = tellingNames
