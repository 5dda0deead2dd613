"""What a new gateway needs: an authority and its certificates."""
