"""What each verb does, as a person sees it."""
