"""What the inventory's power keys come to on one host, in watts and MHz for each card, and whether hosts fit their budgets. Pure."""
