"""What the analysis found, told to people and programs: findings, the terminal, the page, differences."""
