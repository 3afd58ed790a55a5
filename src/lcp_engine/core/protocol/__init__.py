"""Read what planners answer: the language of LCP, pure."""
