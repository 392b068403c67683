# Placeholder until install lands.
