"""The full-screen program, `lcp top`. Only this package imports Textual."""
